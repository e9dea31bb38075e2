"""Commands that may hang, crash, or say too much: each has a limit, and its words are on disk.

Output goes to files, never through pipes, so that nothing waits for a program that does not read or
does not end. A program that cannot be killed (a driver that hangs) is left behind, and said so.
"""

import contextlib
import ctypes
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time

KEPT = 256 << 10  # bytes of a log: a quarter from its beginning, the rest from its end
MOST_SAID = 64 << 20  # a program that says more is ended
GRACE = 3.0  # seconds between being asked to end and being killed, and then to be gone
LIBRARIES = re.compile(r"/[^\s]*/lib(?:cuda|cudart|cudnn|nccl|nvidia-ml|mpi)[\w-]*\.so[\w.-]*")


@dataclasses.dataclass
class Ran:
    """How a command ended."""

    words: list
    code: int | None  # None: it did not end by itself
    seconds: float
    why: str | None  # one line; None: it ended with 0
    out: str  # all that it said, at most MOST_SAID
    err: str
    out_file: pathlib.Path
    err_file: pathlib.Path
    libraries: list

    @property
    def timed_out(self):
        return self.code is None


def home_removed(text):
    """Paths below somebody's home folder tell who that is."""
    home = str(pathlib.Path.home())
    return text if home in ("/", "") else text.replace(home, "~")


def bounded(file, most=KEPT):
    """Cuts a log to its beginning and its end, and takes the home folder out."""
    if not file.exists():
        return
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= most:
            data = stream.read()
        else:
            head = stream.read(most // 4)
            stream.seek(size - (most - most // 4))
            data = head + b"\n... %d bytes left out ...\n" % (size - most) + stream.read()
    text = home_removed(data.decode(errors="replace"))
    file.write_text(text)


def last_words(errors, lines=2):
    """What a program said about its end; sp-plan's own lines if there are any."""
    told = [line.strip() for line in errors.splitlines() if line.strip()]
    ours = [line for line in told if line.startswith(("sp-plan:", "rank "))]
    return home_removed(" ".join(ours[-lines:] or told[-lines:])[:600])


def _before_exec():
    """The child ends with this script, whatever ends that: a GPU is not held by an orphan."""
    end_with_parent = 1  # PR_SET_PDEATHSIG
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(end_with_parent, signal.SIGKILL)


class Started:
    """A running command."""

    def __init__(self, words, folder, name, env=None, most_said=MOST_SAID):
        self.words = [str(w) for w in words]
        folder.mkdir(parents=True, exist_ok=True)
        self.out_file, self.err_file = folder / f"{name}.out", folder / f"{name}.err"
        self.most_said = most_said
        self.libraries = set()
        self.begin = time.monotonic()
        self.process, self.failed = None, None
        environment = {k: str(v) for k, v in {**os.environ, **(env or {})}.items() if v is not None}
        try:
            with self.out_file.open("wb") as out, self.err_file.open("wb") as err:
                self.process = subprocess.Popen(  # pylint: disable=consider-using-with
                    self.words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder,
                    env=environment, process_group=0, preexec_fn=_before_exec)
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            self.failed = str(e)

    def ended(self):
        return self.process is None or self.process.poll() is not None

    def said_too_much(self):
        sizes = [file.stat().st_size for file in (self.out_file, self.err_file) if file.exists()]
        return max(sizes, default=0) > self.most_said

    def look_at_libraries(self):
        """Which files of CUDA, cuDNN and NCCL it really has: more than any search for them tells."""
        with contextlib.suppress(OSError):
            maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text(errors="replace")
            self.libraries.update(LIBRARIES.findall(maps))

    def kill(self, grace):
        """Its whole group, first politely. True if it is gone."""
        if self.process is None:
            return True
        for what in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, what)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
                break
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # what it has left behind
        return self.process.poll() is not None

    def result(self, stopped=None):
        """`stopped`: why it was ended, if it did not end by itself."""
        code = None if stopped else 127 if self.process is None else self.process.returncode
        texts = [file.read_bytes()[:self.most_said].decode(errors="replace") if file.exists() else ""
                 for file in (self.out_file, self.err_file)]
        why = stopped or self.failed
        if why is None and code != 0:
            ended = f"exit {code}" if code > 0 else f"killed by {_signal_name(-code)}"
            why = f"{ended}: {last_words(texts[1]) or last_words(texts[0], 1) or 'it said nothing'}"
        for file in (self.out_file, self.err_file):
            bounded(file)
        return Ran(self.words, code, round(time.monotonic() - self.begin, 3), why, *texts,
                   self.out_file, self.err_file, sorted(home_removed(name) for name in self.libraries))


def _signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def together(started, limit, grace=GRACE):
    """Waits for commands that belong together: when one fails or time is up, all are ended."""
    end = time.monotonic() + max(limit, 0.1)
    pause, stopped = 0.005, None
    try:
        while stopped is None and not all(s.ended() for s in started):
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)
            for s in started:
                if not s.ended():
                    s.look_at_libraries()
            if any(s.ended() and (s.process is None or s.process.returncode != 0) for s in started):
                time.sleep(min(grace, max(end - time.monotonic(), 0)) if len(started) > 1 else 0)
                stopped = "ended because another process of the run failed"
            elif time.monotonic() > end:
                stopped = f"no end after {limit:.0f} s"
            elif any(s.said_too_much() for s in started):
                stopped = f"said more than {started[0].most_said >> 20} MiB"
    except BaseException:
        for s in started:
            s.kill(grace)
        raise
    results = []
    for s in started:
        mine = None
        if not s.ended():
            mine = stopped
            if not s.kill(grace):
                mine += ", and it cannot be killed"
        results.append(s.result(mine))
    return results


def run(words, limit, folder, name, env=None, grace=GRACE):
    return together([Started(words, folder, name, env)], limit, grace)[0]
