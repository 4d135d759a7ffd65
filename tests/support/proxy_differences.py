"""Which tests of namespaces `make test-proxy` runs through a proxy, and those whose result is another there."""

from __future__ import annotations

FILES = (
    *("test_sdk_queues.py", "test_sdk_queues_aio.py", "test_sdk_sessions.py", "test_sdk_sessions_aio.py"),
    *("test_sdk_topics.py", "test_sdk_topics_aio.py", "test_sdk_admin.py", "test_sdk_admin_aio.py"),
    *("test_sdk_duplicates.py", "test_sdk_forwarding.py", "test_sdk_forwarding_aio.py", "test_sdk_rights.py"),
    *("test_every_entity.py", "test_every_type.py", "test_encoded_messages_sdk.py", "test_exceptions.py"),
    *("test_bad_input_kinds.py", "test_proton.py", "test_send_command.py", "test_receive_command.py"),
    *(
        "test_wire.py",
        "test_sessions_wire.py",
        "test_rules_wire.py",
        "test_rights_wire.py",
        "test_transactions_wire.py",
    ),
    "test_opening_lines.py",
)
"""About what a namespace does for those who use it. The others are about commands, about pairs, about what a namespace
keeps or counts, and about faults of the whole namespace, which a proxy is there to hide."""

_HIDDEN = "keys of entities do not leave the proxy"
_ENTITY_KEY = "a key of an entity opens the entity at the primary; the proxy has keys of its own only"
_WEB_TOKEN = "applications have keys for a proxy; it does not know whose web tokens the primary believes"
_BUSY = "the proxy waits for a busy primary, as paired clients do, longer than the test waits for an answer"
_OTHER_NAME = (
    "it pairs two proxies: their backlog is called after the proxy, and the test asks for the name of the primary"
)

DIFFERENCES: dict[str, str] = {
    "test_sdk_admin.py::test_every_option_comes_back_as_it_was_set": _HIDDEN,
    "test_sdk_admin.py::test_an_update_sends_everything_back_and_changes_what_was_changed": _HIDDEN,
    "test_sdk_admin.py::test_settings_and_status_are_there_after_a_restart": _HIDDEN,
    "test_sdk_forwarding.py::test_whoever_forwards_must_be_allowed_to_manage_both": _ENTITY_KEY,
    "test_sdk_rights.py::test_a_queues_own_key_opens_that_queue_and_no_other": _ENTITY_KEY,
    "test_sdk_rights.py::test_the_key_of_a_queue_opens_no_queue_whose_name_goes_on": _ENTITY_KEY,
    "test_sdk_rights.py::test_keys_that_are_changed_by_the_administration_count_at_once": _ENTITY_KEY,
    "test_sdk_rights.py::test_a_web_token_of_a_configured_issuer_gives_its_roles": _WEB_TOKEN,
    "test_sdk_topics.py::test_a_key_of_the_topic_opens_its_subscriptions_and_nothing_else": _ENTITY_KEY,
    "test_every_type.py::test_the_syphon_moves_every_type_unchanged_and_its_tools_show_them": _OTHER_NAME,
    "test_send_command.py::test_with_a_secondary_a_message_is_stored_though_the_primary_refuses": _OTHER_NAME,
    "test_exceptions.py::test_proton_gets_the_condition[busy]": _BUSY,
    "test_exceptions.py::test_a_namespace_that_has_too_much_memory_takes_nothing_in": _BUSY,
    "test_exceptions.py::test_what_comes_faster_than_it_is_written_is_refused_as_busy": _BUSY,
    "test_wire.py::test_a_port_that_somebody_took_meanwhile_is_taken_back_when_it_is_free": (
        "the port of the primary is given up, and not that of the proxy"
    ),
}
"""Tests that fail through a proxy, by file and name, with the reason."""


def difference_of(test: str) -> str | None:
    """Why a test has another result through a proxy; None: it has not. `test` is its id, from its file on."""
    return DIFFERENCES.get(test) or DIFFERENCES.get(test.partition("[")[0])
