"""The broker: a pure state machine. What it may not do: input, output, clocks, threads, unordered iteration."""

from thatch.broker.broker import Broker
from thatch.broker.cells import Cells
from thatch.broker.client import Client
from thatch.broker.dryrun import Plan, plan_policy, plan_subscription, plan_unsubscription
from thatch.broker.policy import Policy, Settings

__all__ = [
    "Broker",
    "Cells",
    "Client",
    "Plan",
    "Policy",
    "Settings",
    "plan_policy",
    "plan_subscription",
    "plan_unsubscription",
]
