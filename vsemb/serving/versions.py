"""The versions of one model: which are wanted, which are served, and the change from one to the next.

A new version is loaded beside the old one and takes its place when it has answered its warm-up requests;
requests that the old one has begun are finished before it is unloaded. A version that cannot be loaded is
reported and leaves the old one where it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorflow_serving.apis.get_model_status_pb2 import ModelVersionStatus as State

from vsemb.errors import DataError
from vsemb.export.versions import existing_versions
from vsemb.serving.models import LoadedModel
from vsemb.serving.status import Code, RequestError, invalid

LOG = logging.getLogger("vsemb.serving")

# "latest", "all" or the numbers themselves.
Policy = str | Sequence[int]


@dataclass
class Version:
    """One version's state.

    Attributes:
        number: the version.
        state: where it is in its life, a state of ModelVersionStatus.
        error: why it could not be loaded; empty otherwise.
        model: what is served; None before and after.
        users: requests that hold it.
        seen: the directory's contents at the last attempt to load it.
    """

    number: int
    state: int = State.START
    error: str = ""
    model: LoadedModel | None = None
    users: int = 0
    seen: object = None


class ModelVersions:
    """The versions of one model. Everything but loading happens on the event loop.

    Args:
        name: the model's name in requests.
        base: its directory, with a directory for each version.
        policy: `latest`, `all`, or the numbers of the versions to serve.
        labels: label -> version; labelled versions are served whatever the policy.

    Raises:
        DataError: if `base` is no directory or holds no version.
    """

    def __init__(
        self,
        name: str,
        base: str | os.PathLike[str],
        policy: Policy = "latest",
        labels: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.base = Path(base)
        self.policy = policy
        self.labels = dict(labels or {})
        self._warned: set[str] = set()
        self.versions: dict[int, Version] = {}
        if not self.base.is_dir():
            raise DataError(f"There is no model directory {base}. Write one with `vsemb export RUN {base}`.")
        if not existing_versions(self.base):
            if (self.base / "saved_model.pb").is_file():
                raise DataError(f"{self.base} is one version; name the model's directory, {self.base.parent}.")
            raise DataError(
                f"{base} holds no version, a directory with an integer name. Write one with `vsemb export RUN {base}`."
            )

    @property
    def available(self) -> list[int]:
        """The numbers of the versions that answer requests, ascending."""
        return sorted(number for number, version in self.versions.items() if version.state == State.AVAILABLE)

    def labelled(self, label: str) -> int:
        """Returns the number of a labelled version.

        Raises:
            RequestError: INVALID_ARGUMENT for an unknown label.
        """
        if label not in self.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return self.labels[label]

    @contextlib.contextmanager
    def lease(self, version: int | None = None, label: str | None = None) -> Iterator[tuple[int, LoadedModel]]:
        """Holds the version that answers a request, so that it is not unloaded meanwhile.

        Args:
            version: its number; None for the newest.
            label: its label, instead of the number.

        Yields:
            Its number and its model.

        Raises:
            RequestError: NOT_FOUND if it is not served, INVALID_ARGUMENT for an unknown label.
        """
        if label:
            version = self.labelled(label)
        available = self.available
        number = max(available, default=None) if version is None else version
        if number not in available:
            raise not_served(self.name, version)
        found = self.versions[number]
        assert found.model is not None
        found.users += 1
        try:
            yield number, found.model
        finally:
            found.users -= 1
            self._drop_if_idle(found)

    async def refresh(self) -> None:
        """Looks at the directory once and loads and unloads what that asks for."""
        present = await asyncio.to_thread(self._present)
        if present is None:
            self._warn_once(f"cannot read {self.base}; what is loaded stays.")
            return
        for label, number in self.labels.items():
            if number not in present:
                self._warn_once(f"there is no version {number} yet for the label {label}.")
        wanted = await self._load_wanted(present)
        self._unload(set(self.available) - wanted)

    def _warn_once(self, line: str) -> None:
        if line not in self._warned:
            self._warned.add(line)
            LOG.warning("%s: %s", self.name, line)

    def close(self) -> None:
        """Takes all versions out of service."""
        self._unload(self.available)

    def _present(self) -> list[int] | None:
        try:
            if not self.base.is_dir():
                return None
            return [
                number
                for number in existing_versions(self.base)
                # The API's numbers are int64; files, and numbers with zeros before them, are no versions.
                if number < 2**63 and (self.base / str(number)).is_dir()
            ]
        except OSError:
            return None

    async def _load_wanted(self, present: list[int]) -> set[int]:
        """Loads what the policy asks for and returns the numbers that are to stay."""
        kept = {number for number in self.labels.values() if number in present}
        if self.policy != "latest":
            kept |= set(present) & set(present if self.policy == "all" else self.policy)
        for number in sorted(kept):
            await self._load(number)
        if self.policy == "latest":
            for number in reversed(present):
                # A broken version is no reason to stop serving the one before it.
                if await self._load(number):
                    return kept | {number}
        return kept

    async def _load(self, number: int) -> bool:
        version = self.versions.setdefault(number, Version(number))
        if version.state == State.AVAILABLE:
            return True
        path = self.base / str(number)
        seen = await asyncio.to_thread(_contents, path)
        if version.error and version.seen == seen:
            # Nothing changed since it failed.
            return False
        version.seen, version.error, version.state = seen, "", State.LOADING
        try:
            model = await asyncio.to_thread(LoadedModel, path, self.name)
            await asyncio.to_thread(model.warm_up)
        except DataError as error:
            version.state, version.error = State.END, str(error)
            LOG.error("%s: version %d is not served. %s", self.name, number, error)
            return False
        version.model, version.state = model, State.AVAILABLE
        LOG.info("%s: version %d is served.", self.name, number)
        return True

    def _unload(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self.versions[number].state = State.UNLOADING
            self._drop_if_idle(self.versions[number])

    def _drop_if_idle(self, version: Version) -> None:
        if version.state == State.UNLOADING and not version.users:
            version.model, version.state = None, State.END
            LOG.info("%s: version %d is unloaded.", self.name, version.number)


def _contents(path: Path) -> object:
    """Returns something that changes while a version's files are being written."""
    found = []
    for directory, _, names in os.walk(path):
        for name in sorted(names):
            with contextlib.suppress(OSError):
                stat = os.stat(os.path.join(directory, name))
                found.append((directory, name, stat.st_size, stat.st_mtime_ns))
    return sorted(found)


def not_served(name: str, version: int | None) -> RequestError:
    """Returns the error of a request to a model, or to one version of it, that is not served."""
    which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
    return RequestError(Code.NOT_FOUND, f"Servable not found for request: {which}")
