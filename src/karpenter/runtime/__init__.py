"""The controllers' machinery: work queue, back-off, controllers, executor, events, leader election."""

from karpenter.runtime.backoff import Backoff
from karpenter.runtime.controller import Controller, Requeue, Result, Singleton
from karpenter.runtime.events import EventLimit, Recorder
from karpenter.runtime.executor import Executor, InlineExecutor, ThreadExecutor
from karpenter.runtime.leader import LeaderElector
from karpenter.runtime.queue import WorkQueue

__all__ = [
    "Backoff",
    "Controller",
    "EventLimit",
    "Executor",
    "InlineExecutor",
    "LeaderElector",
    "Recorder",
    "Requeue",
    "Result",
    "Singleton",
    "ThreadExecutor",
    "WorkQueue",
]
