"""Several processes that train one model together: on many cores, devices or machines.

``torchrun`` starts them, and each runs the same program on the same rows. They go through the same
batches, and of each batch a process takes its part. The gradients of all parts are added up before
a step, so a step is that of the whole batch, and all have the same weights after it. Whatever is
chosen or drawn on the way is what the first process says.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from spen.errors import InputError, SpenError

T = TypeVar("T")

SAID_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What the environment of a process holds that torchrun started."""

LONGEST_WAIT = timedelta(hours=2)
"""How long a process waits for one that lives but does not answer, or that reads rows for all."""


@dataclass(frozen=True)
class Processes:
    """The processes that train together, as one of them sees them.

    All of them have to call the same methods in the same order: each call waits for the others.

    Attributes:
        rank: the number of this one; the first, 0, writes files and shows progress.
        count: how many there are.

    >>> alone = Processes(0, 1)
    >>> alone.part(5), alone.said_by_first(lambda: "yes")
    (slice(0, 5, None), 'yes')
    >>> [Processes(rank, 2).part(5) for rank in range(2)]
    [slice(0, 3, None), slice(3, 5, None)]
    """

    rank: int
    count: int

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def part(self, n: int, turn: int = 1) -> slice:
        """Return which of n things in a row are this process's.

        This is the one place that shares rows out. The first parts are the larger ones, so that
        of few things the first process has some.

        Args:
            n: how many there are.
            turn: how many stay together, of which n is a multiple.
        """
        each, more = divmod(n // turn, self.count)
        first = self.rank * each + min(self.rank, more)
        return slice(turn * first, turn * (first + each + (self.rank < more)))

    def own_generator(self, common: torch.Generator, *place: int) -> torch.Generator:
        """Return what dropout masks and the like are drawn from at some place of a run.

        One process draws them from the generator that all have in common. Of several, each has
        other rows, so it draws by itself, and the common one stays the same everywhere.
        """
        if self.count == 1:
            return common
        entropy = (common.initial_seed(), *place, self.rank)
        seed = int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]) >> 1
        return torch.Generator(common.device).manual_seed(seed)

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, in the tensor's own memory."""
        if self.count > 1:
            with _reached(self):
                dist.all_reduce(tensor)
        return tensor

    @torch.no_grad()
    def take_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Fill tensors with what they hold in the first process."""
        if self.count == 1:
            return
        for some in _by_kind(list(tensors)):
            flat = torch.cat([tensor.flatten() for tensor in some])
            flat = flat.to(_device()) if flat.device.type == "cpu" else flat
            with _reached(self):
                dist.broadcast(flat, 0)
            for tensor, part in zip(some, flat.split([t.numel() for t in some]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def gathered(self, parts: Sequence[Tensor]) -> Tensor:
        """Return the rows of all processes: those of each one after the other.

        Args:
            parts: tensors (n, ...) of this process, maybe none; the first process has some.
        """
        own = torch.cat(list(parts)) if parts else None
        if self.count == 1:
            assert own is not None
            return own
        device = _device()
        said = self.said_by_all(None if own is None else (len(own), own.shape[1:], own.dtype))
        lengths, (_, shape, dtype) = [each[0] if each else 0 for each in said], said[0]
        padded = torch.zeros(max(lengths), *shape, dtype=dtype, device=device)
        if own is not None:
            padded[: len(own)] = own
        found = [torch.empty_like(padded) for _ in lengths]
        with _reached(self):
            dist.all_gather(found, padded)
        whole = [each[:length] for each, length in zip(found, lengths, strict=True)]
        return torch.cat(whole).to(device if own is None else own.device)

    def said_by_all(self, own: Any) -> list[Any]:
        """Return what each process says, in their order."""
        said = [own] * self.count
        if self.count > 1:
            with _reached(self):
                dist.all_gather_object(said, own, group=_control(dist.group.WORLD))
        return said

    def said_by_first(self, say: Callable[[], T]) -> T:
        """Return what the first process says, or raise what it raises; the others only listen."""
        if self.count == 1:
            return say()
        said: list[Any] = [None, None]
        if self.is_first:
            try:
                said[0] = say()
            except Exception as problem:
                said[1] = problem
        with _reached(self):
            dist.broadcast_object_list(said, 0, group=_control(dist.group.WORLD))
        if said[1] is not None:
            raise said[1]
        return said[0]

    @contextmanager
    def entered_by_first(self, manager: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
        """Enter in the first process what belongs to all, such as a lock; all get its value."""
        with ExitStack() as held:
            yield self.said_by_first(lambda: held.enter_context(manager()))

    @contextmanager
    def entered_here(self, manager: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
        """Enter once on each machine what its processes share, such as files; all get its value."""
        place = int(os.environ.get("LOCAL_RANK", 0)) if self.count > 1 else 0
        value: Any = None
        problem: Exception | None = None
        with ExitStack() as held:
            if place == 0:
                try:
                    value = held.enter_context(manager())
                except Exception as found:
                    problem = found
            said = self.said_by_all((value, problem))
            for _, problem in said:
                if problem is not None:
                    raise problem
            # torchrun numbers the processes of a machine one after the other.
            yield said[self.rank - place][0]
            # Others may still need it until here.
            self.said_by_all(None)

    def check_same(self, described: Mapping[str, str]) -> None:
        """Raise unless all processes were given the same things to train, by what describes them.

        Args:
            described: what each thing is called, and a text that differs where it does.
        """
        wanted = self.said_by_first(lambda: dict(described))
        differing = sorted(name for name in wanted if described.get(name) != wanted[name])
        # All find out at once, so that none waits for one that has ended.
        found = self.said_by_all(len(differing))
        if any(found):
            others = ", ".join(str(rank) for rank, count in enumerate(found) if count)
            what = f" This one differs in {', '.join(differing)}." if differing else ""
            raise InputError(
                "Processes that train together must be given the same rows, settings and seed. "
                f"Those of process {others} differ from those of process 0.{what}"
            )


class Gradients:
    """The gradients of what a stage trains, which all processes add up before a step.

    Args:
        processes: that train it.
        parameters: what is trained.
    """

    def __init__(self, processes: Processes, parameters: Sequence[Tensor]) -> None:
        self._processes = processes
        self._groups: list[tuple[list[Tensor], Tensor]] = []
        if processes.count > 1:
            # The widest type first, which takes the loss along.
            for some in sorted(_by_kind(parameters), key=lambda some: -some[0].element_size()):
                size = sum(parameter.numel() for parameter in some)
                self._groups.append((some, some[0].new_empty(size + len(some) + 1)))

    @torch.no_grad()
    def add_up(self, loss: Tensor) -> Tensor:
        """Let each parameter have the sum of the gradients that it has in all processes.

        A parameter that has none in any process still has none.

        Args:
            loss: (), of this process's rows; the sum of all is returned.
        """
        for some, flat in self._groups:
            have = [parameter.grad is not None for parameter in some]
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in some]
            there = flat.new_ones(len(some)) if all(have) else flat.new_tensor(have)
            numbers = (*(grad.flatten() for grad in grads), there, loss.to(flat).view(1))
            torch.cat(numbers, out=flat)
            self._processes.total(flat)
            *parts, counts, total = flat.split([each.numel() for each in numbers])
            if some is self._groups[0][0]:
                loss = total[0].clone()
            # A GPU would have to wait for these numbers.
            anywhere = have if all(have) else [count > 0 for count in counts.tolist()]
            for parameter, grad, part, is_there in zip(some, grads, parts, anywhere, strict=True):
                if is_there:
                    parameter.grad = grad.copy_(part.view(grad.shape))
        return loss


ALONE = Processes(0, 1)
"""A process that trains by itself."""


def our_processes() -> Processes:
    """Return the processes that train together; those that torchrun started meet at the first call.

    >>> our_processes()
    Processes(rank=0, count=1)
    """
    if not dist.is_available():
        return ALONE
    if not dist.is_initialized():
        if not os.environ.keys() >= set(SAID_BY_TORCHRUN) or int(os.environ["WORLD_SIZE"]) < 2:
            return ALONE
        _meet()
    return Processes(dist.get_rank(), dist.get_world_size())


def _meet() -> None:
    # Functions there have the group as a default, if there is one when they are imported (and
    # optimisers import them): it and its threads would outlive all else, and abort the process.
    import torch.distributed.nn

    on_gpus = torch.cuda.is_available() and dist.is_nccl_available()
    if on_gpus and (local := int(os.environ.get("LOCAL_RANK", 0))) < torch.cuda.device_count():
        # What "cuda" stands for from now on.
        torch.cuda.set_device(local)
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with _reached(Processes(rank, count)):
        dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpus else "gloo", timeout=LONGEST_WAIT)
    atexit.register(_part)


def _part() -> None:
    """Let go of the others, and of the threads that listen to them, before Python ends."""
    _control.cache_clear()
    # Else a thread may want Python once more, to free a tensor, when that has ended.
    if dist.is_initialized():
        dist.destroy_process_group()


@functools.cache
def _control(world: Any) -> Any:
    """Return the group in which processes talk; whoever made the world may have it for GPUs alone.

    It is made anew for a new world.
    """
    return world if "gloo" in dist.get_backend_config(world) else dist.new_group(backend="gloo")


def _device() -> torch.device:
    """Return where tensors are that processes exchange."""
    if "gloo" in dist.get_backend_config(dist.group.WORLD):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


@contextmanager
def _reached(processes: Processes) -> Iterator[None]:
    """Say of what cannot be exchanged that another process is missing."""
    try:
        yield
    except RuntimeError as problem:
        # Without where in gloo that was, and without its advice.
        said = re.sub(r"^\[\S+:\d+\] ", "", str(problem)).split(". ")[0]
        raise SpenError(
            f"Process {processes.rank} of {processes.count} has lost another one, which has ended "
            f"or cannot be reached ({said}). Look for what that one said. A checkpoint stays as it "
            "was written last: the same command goes on from it, with any number of processes."
        ) from problem


def _by_kind(tensors: Sequence[Tensor]) -> Iterable[list[Tensor]]:
    """Return tensors in groups that can stand in one."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return groups.values()
