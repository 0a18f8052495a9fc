"""A folder that Spark writes."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession

from thatch.errors import CallerError
from thatch.local.files import has_scheme

PATIENCE = 10.0  # seconds, for a job that is cancelled
MICROSECONDS = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"  # Spark's own format ends with milliseconds
TIMES = {"timestampFormat": f"{MICROSECONDS}XXX", "timestampNTZFormat": MICROSECONDS}
WRITING: dict[str, dict[str, Any]] = {
    "parquet": {},
    "csv": {"header": True, "escape": '"', **TIMES},
    "json": {"ignoreNullFields": False, **TIMES},
}


class Output:
    """A folder that Spark writes: all of it or nothing, and what was there before stays until then."""

    def __init__(self, session: SparkSession, path: str, kind: str, overwrite: bool) -> None:
        self._name, self._kind = path if has_scheme(path) else os.path.abspath(path), kind
        self._shown = path
        self._context = session.sparkContext
        jvm: Any = self._context._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        java_session: Any = session._jsparkSession
        self._files: Any = self._path(self._name).getFileSystem(java_session.sessionState().newHadoopConf())
        if self._exists() and not overwrite:
            raise CallerError(f"{path} exists already: choose another path, or give --overwrite")
        if self._exists() and not self._files.exists(self._path(f"{self._name}/_SUCCESS")):
            raise CallerError(
                f"{path} was not written by Spark (it has no _SUCCESS): remove it, or choose another path"
            )

    def check_keeps_inputs(self, inputs: Sequence[str]) -> None:
        """What is read must not be written over."""
        own = self._files.makeQualified(self._path(self._name)).toUri().getPath()
        for each in inputs:
            path = unquote(urlparse(each).path)
            if path == own or path.startswith(f"{own}/"):
                raise CallerError(f"{self._shown} holds {path}, which is read: choose another path")

    def write(self, frame: DataFrame) -> None:
        token = secrets.token_hex(8)
        part = f"{self._name}.{token}.part" if self._exists() else self._name
        self._context.setJobGroup(token, f"thatch: {self._shown}", interruptOnCancel=True)
        try:
            frame.write.format(self._kind).options(**WRITING[self._kind]).save(part)
        except BaseException:
            # In a thread of its own: an interrupted one is left in the middle of a conversation with the JVM.
            undo = threading.Thread(target=self._undo, args=(part, token))
            undo.start()
            undo.join()
            raise
        finally:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        if part != self._name:
            self.remove()
            self._files.rename(self._path(part), self._path(self._name))

    def _undo(self, part: str, group: str) -> None:
        """Tasks of a job that has failed or is cancelled may go on for a moment, and make their folders again."""
        self._context.cancelJobGroup(group)
        gone, patience = 0, time.monotonic() + PATIENCE
        while gone < 5 and time.monotonic() < patience:
            gone = 0 if self._files.delete(self._path(part), True) else gone + 1
            time.sleep(0.2)

    def remove(self) -> None:
        self._files.delete(self._path(self._name), True)

    def _exists(self) -> bool:
        return bool(self._files.exists(self._path(self._name)))
