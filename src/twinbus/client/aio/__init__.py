"""The paired client for asyncio."""
