"""The typed inventory: hosts and how they are reached, runs to watch, evaluations to make.

Defaults are documented here and nowhere else; the JSON schema, `inventory --check` and the reader's
messages all come from these models. Paths on hosts are absolute.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from hostkit.inventory.units import Duration, Size


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path; a path on a host starts with / (no ~, no $HOME)")
    if "\n" in path or "\0" in path:
        raise ValueError("a path holds no newline and no zero byte")
    return path


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9._-]{0,62}$")]
HostPath = Annotated[str, AfterValidator(_absolute)]
Text = Annotated[str, StringConstraints(min_length=1)]
Port = Annotated[StrictInt, Field(ge=1, le=65535)]
Count = Annotated[StrictInt, Field(ge=1)]


class Model(BaseModel):
    """Frozen, and deaf to nothing: an unknown key is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HostTimeouts(Model):
    """Budgets for one hop."""

    connect: Duration = Field(10.0, description="TCP connection and banner")
    auth: Duration = Field(15.0, description="key exchange and login")
    idle: Duration = Field(20.0, description="silence after which the connection counts as lost")


class Host(Model):
    """One host: exactly one of `address`, `alias`, `pct`, `local` says what it is; `via` and `login` how to get there."""

    address: Text | None = Field(None, description="host name or IP address of an ssh server")
    alias: Text | None = Field(
        None, description="a Host of your own ssh config; everything comes from there (ssh -G)"
    )
    pct: Annotated[StrictInt, Field(ge=100, le=999_999_999)] | None = Field(
        None, description="VMID of a Proxmox container, entered by `pct exec` on the host named by `via`"
    )
    local: Literal[True] | None = Field(None, description="this machine itself")
    via: Name | None = Field(None, description="the host through which this one is reached")
    login: Literal["forward", "there"] = Field(
        "forward",
        description="forward: a tunnel, with this machine's keys and known_hosts; there: ssh is run on the outer hop, "
        "with that host's keys and known_hosts",
    )
    user: Text | None = Field(None, description="login name; default: your ssh config's, else your own")
    port: Port | None = Field(None, description="default: 22, or your ssh config's")
    identity: Text | None = Field(
        None, description="private key file, on the machine where ssh runs for this hop"
    )
    ssh_config: Text | None = Field(
        None, description="ssh config file (-F), on the machine where ssh runs for this hop"
    )
    known_hosts: Text | None = Field(
        None, description="known_hosts file, on the machine where ssh runs for this hop"
    )
    python: Text = Field("python3", description="interpreter for hostkit's own small programs (3.8 or newer)")
    state: HostPath | None = Field(
        None, description="where jobs are kept; default: ~/.local/state/hostkit of the login"
    )
    machine: Name | None = Field(
        None, description="the physical machine, where several inventory hosts share one"
    )
    sudo: Text | None = Field(None, description="run commands on this host as that user, by sudo -n")
    timeouts: HostTimeouts = HostTimeouts.model_construct()


class Process(Model):
    """What tells the run's process: exactly one of script, module, pidfile; the rest tells like runs apart."""

    script: Text | None = Field(
        None, description="script name or path, by its position in the argv, never as a substring"
    )
    module: Text | None = Field(None, description="module started with python -m")
    pidfile: HostPath | None = Field(None, description="pid file, read inside the run's own pid namespace")
    args: list[Text] = Field(
        default=[], description="arguments that must all stand in the argv, each as one whole word"
    )
    cwd: HostPath | None = Field(None, description="working directory of the process")
    workers: Count | None = Field(None, description="how many worker processes a healthy run has")


class Log(Model):
    """The run's log, and how a step, a loss, a time and the end are read from a line (regular expressions, group 1)."""

    path: HostPath | None = Field(None, description="default: found from the process's open files")
    format: Literal["auto", "json", "text"] = Field("auto", description="json: one object a line")
    step: Text | None = Field(None, description="regular expression with one group, or the JSON key")
    loss: Text | None = None
    time: Text | None = None
    finished: Text | None = Field(
        None, description="regular expression of the line that a run writes at its good end"
    )


class Checkpoints(Model):
    """Where a run saves, and what of it an evaluation needs."""

    root: HostPath
    pattern: Annotated[Text, AfterValidator(lambda v: _need_step(v))] = Field(
        "step_{step}/checkpoint.pt", description="path below root; {step} stands for the number"
    )
    every: Count | None = Field(None, description="steps between two saves")
    weights: list[Text] = Field(
        default=[], description="top-level keys that an evaluation needs; default: what the harness loads"
    )
    marker: Text | None = Field(None, description="file beside the checkpoint that is written last")


def _need_step(pattern: str) -> str:
    if pattern.count("{step}") != 1:
        raise ValueError("the pattern holds {step} exactly once")
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError("the pattern is a path below root")
    return pattern


class RunTimeouts(Model):
    """Limits on a run's silence."""

    startup: Duration = Field(1800.0, description="from start to the first step")
    stall: Duration = Field(900.0, description="the newest evidence of movement may be this old")
    save: Duration = Field(600.0, description="a save may be late by this much")


class SaveOn(Model):
    """How the trainer is asked for a checkpoint, if it offers that."""

    file: HostPath


class Run(Model):
    """A training run that is watched, and never touched."""

    host: Name
    process: Process
    gpus: list[Annotated[StrictInt, Field(ge=0)]] = []
    log: Log = Log.model_construct()
    checkpoints: Checkpoints | None = None
    total_steps: Count | None = None
    block_size: Count | None = Field(
        None, description="block size it is trained with, for the caveat beside figures"
    )
    timeouts: RunTimeouts = RunTimeouts.model_construct()
    save_on: SaveOn | None = None
    links: dict[str, Text] = {}


class Target(Model):
    """The model whose tokens the drafter drafts."""

    model: HostPath = Field(description="folder of the target on the evaluation host")
    api: Text | None = Field(
        None, description="OpenAI-compatible server for reference completions; default: the target on CPU"
    )


class Limits(Model):
    """What an evaluation may take."""

    memory: Size | None = Field(None, description="default: the computed peak and a quarter")
    cpus: Count | None = None
    wall: Duration = Field(6 * 3600.0, description="it is ended after this long")


class Harness(Model):
    """Your own evaluation harness."""

    command: list[Text] = Field(min_length=1, description="argv template with {checkpoint} {out} {blocks}")
    files: list[HostPath] = Field(default=[], description="files hashed on both sides")
    results: dict[str, Text] = Field(default={}, description="metric name: key in its result JSON")


class Baseline(Model):
    """A published drafter to compare with."""

    drafter: HostPath


class Eval(Model):
    """An evaluation of a run's checkpoints on a host."""

    run: Name
    host: Name
    workspace: HostPath
    python: HostPath
    harness: Literal["dflash"] | Harness = "dflash"
    target: Target | None = None
    prompts: Annotated[Text, Field(description="`bundled`, or a JSONL file on this machine")] = "bundled"
    max_prompts: Count | None = Field(None, description="use only the first so many prompts")
    max_new_tokens: Count = Field(512, description="length of the reference completions")
    thinking: StrictBool = Field(False, description="the chat template's enable_thinking")
    blocks_per_prompt: Count = 30
    quick_blocks_per_prompt: Count = 15
    block_size: Count | None = Field(None, description="default: the checkpoint's own")
    seed: Annotated[StrictInt, Field(ge=0)] = 0
    limits: Limits = Limits.model_construct()
    baselines: dict[str, Baseline] = {}


class Inventory(Model):
    """One inventory file."""

    hostkit: Literal[1] = Field(description="version of this format")
    archive: HostPath = Field(description="results, logbook, acks: plain files on this machine")
    hosts: dict[Name, Host]
    runs: dict[Name, Run] = {}
    evals: dict[Name, Eval] = {}
    notify: list[Text] = []
