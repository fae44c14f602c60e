"""The typed inventory: hosts and how they are reached, runs to watch, evaluations to make.

Defaults are documented here and nowhere else; the JSON schema, `inventory --check` and the reader's
messages all come from these models. Paths on hosts are absolute. What concerns several entries at once
(who exists, who goes through whom) is checked in `crosschecks`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    model_validator,
)

from hostkit.inventory.units import Duration, Size
from hostkit.inventory.values import (
    Address,
    Alias,
    Argument,
    Container,
    Count,
    FilePath,
    Folder,
    HostPath,
    Index,
    Integer,
    Interpreter,
    KeyPath,
    Leaf,
    Login,
    Module,
    Name,
    Port,
    Prefix,
    Prompts,
    Regex,
    RootFolder,
    Script,
    StepPattern,
    Text,
    Web,
)


def _exactly_one(*keys: str) -> dict[str, Any]:
    return {"oneOf": [{"required": [key]} for key in keys]}


class Model(BaseModel):
    """Frozen, and deaf to nothing: an unknown key is a fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _here(value: object) -> object:
    if value is not True and value is not None:
        raise ValueError("local is true, or absent; write local: true for this machine, else address:")
    return value


class HostTimeouts(Model):
    """Budgets for one hop."""

    connect: Duration = Field(10.0, description="TCP connection and banner; default 10s")
    auth: Duration = Field(15.0, description="key exchange and login; default 15s")
    idle: Duration = Field(20.0, description="silence after which the connection counts as lost; default 20s")


class Host(Model):
    """One host.

    Exactly one of `address`, `alias`, `pct`, `local` says what it is; `via` and `login` say how to get there.
    """

    model_config = ConfigDict(json_schema_extra=_exactly_one("address", "alias", "pct", "local"))

    address: Address | None = Field(
        None, description="host name or IP address of an ssh server", examples=["10.1.230.172"]
    )
    alias: Alias | None = Field(
        None,
        description="a Host of your own ssh config; everything comes from there (ssh -G)",
        examples=["ct129"],
    )
    pct: Annotated[Integer, Field(ge=100, le=999_999_999)] | None = Field(
        None,
        description="VMID of a Proxmox container, entered by `pct exec` on the host named by `via`",
        examples=[200],
    )
    local: Annotated[Literal[True], BeforeValidator(_here)] | None = Field(
        None, description="this machine itself", examples=[True]
    )
    via: Name | None = Field(
        None, description="the host through which this one is reached", examples=["ct129"]
    )
    login: Literal["forward", "there"] = Field(
        "forward",
        description="forward: a tunnel, with this machine's keys and known_hosts; there: ssh is run on the outer "
        "hop, with that host's keys and known_hosts, as by somebody who types ssh twice",
    )
    user: Login | None = Field(
        None, description="login name; default: your ssh config's, else your own", examples=["root"]
    )
    port: Port | None = Field(None, description="default: 22, or your ssh config's", examples=[22])
    identity: FilePath | None = Field(
        None,
        description="private key file, on the machine where ssh runs for this hop",
        examples=["/root/.ssh/id_ed25519"],
    )
    ssh_config: FilePath | None = Field(
        None,
        description="ssh config file (-F), on the machine where ssh runs for this hop",
        examples=["/root/.ssh/config"],
    )
    known_hosts: FilePath | None = Field(
        None,
        description="known_hosts file, on the machine where ssh runs for this hop",
        examples=["/root/.ssh/known_hosts"],
    )
    python: Interpreter = Field(
        "python3",
        description="interpreter for hostkit's own small programs (3.8 or newer)",
        examples=["python3"],
    )
    state: Folder | None = Field(
        None,
        description="where jobs are kept; default: ~/.local/state/hostkit of the login",
        examples=["/var/lib/hostkit"],
    )
    machine: Name | None = Field(
        None, description="the physical machine, where several inventory hosts share one", examples=["pve"]
    )
    sudo: Login | None = Field(
        None, description="run commands on this host as that user, by sudo -n", examples=["root"]
    )
    timeouts: HostTimeouts = Field(HostTimeouts.model_construct(), examples=[{"connect": "10s"}])


class Process(Model):
    """What tells the run's process: exactly one of script, module, pidfile; the rest tells like runs apart."""

    model_config = ConfigDict(json_schema_extra=_exactly_one("script", "module", "pidfile"))

    script: Script | None = Field(
        None,
        description="script name or path, by its position in the argv, never as a substring",
        examples=["train.py"],
    )
    module: Module | None = Field(
        None, description="module started with python -m", examples=["trainer.main"]
    )
    pidfile: FilePath | None = Field(
        None, description="pid file, read inside the run's own pid namespace", examples=["/run/train.pid"]
    )
    args: list[Argument] = Field(
        default=[],
        description="arguments that must all stand in the argv, each as one whole word",
        examples=[["--config", "drafter.yaml"]],
    )
    cwd: HostPath | None = Field(
        None, description="working directory of the process", examples=["/workspace"]
    )
    container: Container | None = Field(
        None,
        description="where it runs in a container of this host: the container's name or id in the cgroup path "
        "(200, trainer, the first 12 digits of a docker id), or `any`",
        examples=["any"],
    )
    workers: Count | None = Field(
        None, description="how many worker processes a healthy run has", examples=[8]
    )


class Log(Model):
    """The run's log, and how a step, a loss, a time and the end are read from a line.

    `step`, `loss`, `time`: a regular expression whose group 1 is the value, or the key in a JSON line.
    """

    path: FilePath | None = Field(
        None, description="default: found from the process's open files", examples=["/workspace/train.log"]
    )
    format: Literal["auto", "json", "text"] = Field("auto", description="json: one object a line")
    step: Text | None = Field(
        None, description="regular expression with one group, or the JSON key", examples=[r"step (\d+)"]
    )
    loss: Text | None = Field(None, description="as step", examples=[r"loss ([\d.]+|nan)"])
    time: Text | None = Field(None, description="as step", examples=[r"^\[(.*?)\]"])
    finished: Regex | None = Field(
        None,
        description="regular expression of the line that a run writes at its good end",
        examples=["training finished"],
    )


class Checkpoints(Model):
    """Where a run saves, and what of it an evaluation needs."""

    root: RootFolder = Field(
        description="the folder below which checkpoints appear", examples=["/workspace/checkpoints"]
    )
    pattern: StepPattern = Field(
        "step_{step}/checkpoint.pt",
        description="path below root; {step} stands for the number",
        examples=["step_{step}/checkpoint.pt"],
    )
    every: Count | None = Field(None, description="steps between two saves", examples=[2000])
    keep: Count | None = Field(
        None,
        description="the trainer keeps the newest so many: tells what goes next (hostkit removes nothing)",
        examples=[3],
    )
    keep_every: Count | None = Field(
        None, description="... and every step that is a multiple of this", examples=[10000]
    )
    weights: list[KeyPath] = Field(
        default=[],
        description="what an evaluation needs: keys, or names with dots that lead to one, as state.model.drafter; "
        "default: what the harness loads",
        examples=[["drafter"]],
    )
    step: KeyPath | None = Field(
        None,
        description="where the step stands inside, as trainer.global_step; default: step, global_step, iteration, …",
        examples=["trainer.global_step"],
    )
    strip: list[Prefix] = Field(
        default=[],
        description="what a wrapper puts before names, besides module. and _orig_mod., which always are looked through",
        examples=[["net."]],
    )
    marker: Leaf | None = Field(
        None, description="file beside the checkpoint that is written last", examples=["DONE"]
    )


class RunTimeouts(Model):
    """Limits on a run's silence."""

    startup: Duration = Field(1800.0, description="from start to the first step; default 30m")
    stall: Duration = Field(900.0, description="the newest evidence of movement may be this old; default 15m")
    save: Duration = Field(600.0, description="a save may be late by this much; default 10m")


class SaveOn(Model):
    """How the trainer is asked for a checkpoint, if it offers that."""

    file: FilePath = Field(
        description="the file that asks for one by existing", examples=["/workspace/SAVE_NOW"]
    )


class Run(Model):
    """A training run that is watched, and never touched."""

    host: Name = Field(description="the inventory host on which it runs", examples=["ct200"])
    process: Process = Field(examples=[{"script": "train.py"}])
    gpus: list[Index] = Field(default=[], description="the GPUs that are the run's own", examples=[[0, 1]])
    log: Log = Field(Log.model_construct(), examples=[{"path": "/workspace/train.log"}])
    checkpoints: Checkpoints | None = Field(None, examples=[{"root": "/workspace/checkpoints"}])
    total_steps: Count | None = Field(
        None,
        description="the run's last step; without it there is no ETA and no FINISHED by count",
        examples=[563000],
    )
    block_size: Count | None = Field(
        None, description="block size it is trained with, for the caveat beside figures", examples=[32]
    )
    timeouts: RunTimeouts = Field(RunTimeouts.model_construct(), examples=[{"stall": "15m"}])
    save_on: SaveOn | None = Field(None, examples=[{"file": "/workspace/SAVE_NOW"}])
    links: dict[str, Text] = Field(
        default={}, description="shown beside the status", examples=[{"wandb": "https://wandb.ai/team/run"}]
    )


class Target(Model):
    """The model whose tokens the drafter drafts."""

    model: HostPath = Field(
        description="folder of the target on the evaluation host", examples=["/models/Qwen3.6-27B"]
    )
    api: Web | None = Field(
        None,
        description="OpenAI-compatible server for reference completions; default: the target on CPU",
        examples=["http://127.0.0.1:30000/v1"],
    )


class Limits(Model):
    """What an evaluation may take."""

    memory: Size | None = Field(None, description="default: the computed peak and a quarter")
    cpus: Count | None = Field(None, description="threads; default: left to the harness", examples=[16])
    wall: Duration = Field(6 * 3600.0, description="it is ended after this long; default 6h")


class Harness(Model):
    """Your own evaluation harness."""

    command: list[Text] = Field(
        min_length=1,
        description="argv template with {checkpoint} {out} {blocks}",
        examples=[["python", "eval.py", "{checkpoint}", "{out}"]],
    )
    files: list[HostPath] = Field(
        default=[], description="files hashed on both sides", examples=[["/root/eval/eval.py"]]
    )
    results: dict[str, Text] = Field(
        default={},
        description="metric name: key in its result JSON",
        examples=[{"accept_len": "mean_accept"}],
    )


class Baseline(Model):
    """A published drafter to compare with."""

    drafter: HostPath = Field(
        description="folder of the drafter on the evaluation host", examples=["/models/Qwen3.6-27B-DFlash"]
    )


def _harness_kind(value: object) -> str:
    return "own" if isinstance(value, dict | Harness) else "bundled"


class Eval(Model):
    """An evaluation of a run's checkpoints on a host."""

    run: Name = Field(description="the run whose checkpoints are evaluated", examples=["drafter"])
    host: Name = Field(description="the inventory host on which the evaluation runs", examples=["ct129"])
    workspace: Folder = Field(
        description="folder on that host for staged checkpoints, caches and results", examples=["/root/eval"]
    )
    python: FilePath = Field(
        description="interpreter on that host that has torch and transformers",
        examples=["/root/eval/.venv/bin/python"],
    )
    harness: Annotated[
        Annotated[Literal["dflash"], Tag("bundled")] | Annotated[Harness, Tag("own")],
        Discriminator(_harness_kind),
    ] = Field("dflash", description="the bundled one, or your own command", examples=["dflash"])
    target: Target | None = Field(
        None, description="needed by the bundled harness", examples=[{"model": "/models/Qwen3.6-27B"}]
    )
    prompts: Prompts = Field(
        "bundled", description="`bundled`, or a JSONL file on this machine", examples=["bundled"]
    )
    max_prompts: Count | None = Field(None, description="use only the first so many prompts", examples=[10])
    max_new_tokens: Count = Field(512, description="length of the reference completions", examples=[512])
    thinking: StrictBool = Field(False, description="the chat template's enable_thinking", examples=[False])
    blocks_per_prompt: Count = Field(30, description="blocks that a full evaluation samples", examples=[30])
    quick_blocks_per_prompt: Count = Field(
        15,
        description="blocks that a quick one samples, the first of the full one's; "
        "default: 15, or half of blocks_per_prompt where that is less",
        examples=[15],
    )
    block_size: Count | None = Field(None, description="default: the checkpoint's own", examples=[16])
    seed: Index = Field(0, description="of the sample of blocks", examples=[0])
    limits: Limits = Field(Limits.model_construct(), examples=[{"memory": "72GiB"}])
    baselines: dict[Name, Baseline] = Field(
        default={},
        description="reserved: nothing is compared with them yet, so it must be empty",
        examples=[{"z-lab": {"drafter": "/models/Qwen3.6-27B-DFlash"}}],
    )

    @model_validator(mode="before")
    @classmethod
    def _nest_the_quick_sample(cls, data: Any) -> Any:
        if isinstance(data, dict) and "quick_blocks_per_prompt" not in data:
            blocks = data.get("blocks_per_prompt")
            if type(blocks) is int and 0 < blocks < 30:
                return data | {"quick_blocks_per_prompt": max(1, blocks // 2)}
        return data


def _version(value: object) -> object:
    if type(value) is not int or value != 1:
        raise ValueError("this hostkit reads format 1 and no other; write hostkit: 1")
    return value


class Inventory(Model):
    """One inventory file."""

    hostkit: Annotated[Literal[1], BeforeValidator(_version)] = Field(
        description="version of this format", examples=[1]
    )
    archive: Folder | None = Field(
        None,
        description="folder on this machine for the results of evaluations; default: ~/.local/share/hostkit/archive",
        examples=["/data/hostkit/archive"],
    )
    defaults: dict[str, Any] = Field(
        default={},
        description="a place for anchors (&name) that entries merge with `<<: *name`; not read itself",
    )
    hosts: dict[Name, Host] = Field(min_length=1, examples=[{"trainer": {"address": "10.1.2.3"}}])
    runs: dict[Name, Run] = Field(
        default={}, examples=[{"training": {"host": "trainer", "process": {"script": "train.py"}}}]
    )
    evals: dict[Name, Eval] = Field(
        default={}, examples=[{"drafter": {"run": "training", "host": "trainer"}}]
    )
    notify: list[Text] = Field(
        default=[],
        description="reserved: nothing is sent yet, so it must be empty",
        examples=[[]],
    )

    @property
    def archive_folder(self) -> str:
        """The folder of results on this machine: `archive`, or the default in the user's data directory."""
        if self.archive is not None:
            return self.archive
        from hostkit.directories import data_directory

        return str(data_directory(create=False) / "archive")
