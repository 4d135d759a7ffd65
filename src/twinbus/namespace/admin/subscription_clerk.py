"""Requests about subscriptions and their rules."""

from __future__ import annotations

from aiohttp import web

from twinbus.errors import ArgumentError, OptionsError
from twinbus.namespace.admin import topic_documents
from twinbus.namespace.admin.asking import FEED, Ask, Clerk, Handler, document
from twinbus.namespace.admin.markup import SERVICE_BUS
from twinbus.namespace.admin.routes import Resource, page_of
from twinbus.namespace.admin.rule_documents import read_rule
from twinbus.namespace.admin.validation import SUBSCRIPTION, description_in, read_settings
from twinbus.namespace.commands import (
    AdminCommand,
    CreateRule,
    CreateSubscription,
    DeleteEntity,
    DeleteRule,
    GetEntity,
    GetRule,
    ListRules,
    ListSubscriptions,
    UpdateRule,
    UpdateSubscription,
)
from twinbus.namespace.entities.rules import DEFAULT_RULE
from twinbus.namespace.entities.settings import check_part_name
from twinbus.namespace.replies import Done, RuleFound, RulesFound, SubscriptionFound, SubscriptionsFound


class SubscriptionClerk(Clerk):
    def handlers(self) -> dict[Resource, dict[str, Handler]]:
        return {
            Resource.SUBSCRIPTIONS: {"GET": self._list},
            Resource.SUBSCRIPTION: {"GET": self._get, "PUT": self._put, "DELETE": self._delete},
            Resource.RULES: {"GET": self._list_rules},
            Resource.RULE: {"GET": self._get_rule, "PUT": self._put_rule, "DELETE": self._delete_rule},
        }

    # --- subscriptions ---

    async def _list(self, ask: Ask) -> web.Response:
        page, topic = page_of(ask.request.query), ask.place.topic
        found = await self._ask(ListSubscriptions(topic, page.skip, page.top), SubscriptionsFound)
        next_query = page.next_query if found.has_more else None
        feed = topic_documents.subscription_feed(topic, found.subscriptions, next_query, ask.letterhead)
        return document(feed, FEED)

    async def _get(self, ask: Ask, status: int = 200) -> web.Response:
        found = await self._ask(GetEntity(ask.place.subscription_path), SubscriptionFound)
        return document(topic_documents.subscription_entry(found.subscription, ask.letterhead), status=status)

    async def _put(self, ask: Ask) -> web.Response:
        await self._ask(self._put_command(ask), Done)
        return await self._get(ask, status=200 if ask.is_update else 201)

    def _put_command(self, ask: Ask) -> AdminCommand:
        topic, name = ask.place.topic, ask.place.subscription
        _check_name(name, "subscription")
        description = description_in(ask.body, SUBSCRIPTION.element)
        settings = read_settings(description, SUBSCRIPTION, self._circumstances(ask))
        self._check_targets(ask, settings)
        if ask.is_update:
            return UpdateSubscription(topic, name, settings)
        first = description.find(f"{{{SERVICE_BUS}}}DefaultRuleDescription")
        if first is None or not len(first):
            return CreateSubscription(topic, name, settings)
        rule_name = first.findtext(f"{{{SERVICE_BUS}}}Name") or DEFAULT_RULE
        return CreateSubscription(topic, name, settings, read_rule(first, rule_name))

    async def _delete(self, ask: Ask) -> web.Response:
        await self._ask(DeleteEntity(ask.place.subscription_path), Done)
        return web.Response(status=200)

    # --- rules ---

    async def _list_rules(self, ask: Ask) -> web.Response:
        page, path = page_of(ask.request.query), ask.place.subscription_path
        found = await self._ask(ListRules(path, page.skip, page.top), RulesFound)
        next_query = page.next_query if found.has_more else None
        return document(topic_documents.rule_feed(path, found.rules, next_query, ask.letterhead), FEED)

    async def _get_rule(self, ask: Ask, status: int = 200) -> web.Response:
        path = ask.place.subscription_path
        found = await self._ask(GetRule(path, ask.place.rule), RuleFound)
        return document(topic_documents.rule_entry(path, found.rule, ask.letterhead), status=status)

    async def _put_rule(self, ask: Ask) -> web.Response:
        path, name = ask.place.subscription_path, ask.place.rule
        _check_name(name, "rule")
        rule = read_rule(description_in(ask.body, "RuleDescription"), name)
        await self._ask(UpdateRule(path, rule) if ask.is_update else CreateRule(path, rule), Done)
        return await self._get_rule(ask, status=200 if ask.is_update else 201)

    async def _delete_rule(self, ask: Ask) -> web.Response:
        await self._ask(DeleteRule(ask.place.subscription_path, ask.place.rule), Done)
        return web.Response(status=200)


def _check_name(name: str, kind: str) -> None:
    try:
        check_part_name(name, kind)
    except OptionsError as error:
        raise ArgumentError(str(error)) from None
