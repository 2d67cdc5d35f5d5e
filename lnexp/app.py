"""Commands that take a config, as a Hydra application; every mistake in one line.

`lnexp train` is here, `lnexp prepare` comes with an action of its own.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException, HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lnexp.config import RunConfig, conf_dir
from lnexp.errors import InputError, Interrupted
from lnexp.validate import known_keys, unknown_key, validate

Action = Callable[[RunConfig, dict[str, Any], list[str]], Path]
"""What is done with a config: the same resolved as plain data, and the experiments it names."""

codes: list[int] = []
"""Exit codes of the jobs of this process: one, or those of a sweep."""


def train_command(overrides: list[str]) -> int:
    """Train what the overrides describe; return the exit code."""
    return config_command("train", overrides, train)


def train(cfg: RunConfig, resolved: dict[str, Any], experiments: list[str]) -> Path:
    """Train, or say what would be trained, and return the run directory."""
    if cfg.dry_run:
        from lnexp.dry_run import dry_run

        return dry_run(cfg, resolved)
    from lnexp.session import train_run

    return train_run(cfg, resolved, experiments)


def config_command(command: str, overrides: list[str], action: Action) -> int:
    """Do ``action`` with the config, or the configs, that the overrides describe."""
    codes.clear()
    try:
        hydra_only(command, flags_first(overrides), action)
    except InputError as error:
        return _complain(str(error))
    except (HydraException, OmegaConfBaseException) as error:
        return _complain(explain(error, overrides))
    except OSError as error:  # Hydra makes a directory of its own for a sweep
        return _complain(f"runs_dir: cannot write {error.filename} ({error.strerror})")
    return max(codes, default=0)


def flags_first(arguments: list[str]) -> list[str]:
    """Put Hydra's flags before the overrides: its parser wants all overrides in one piece."""
    takes_value = {"--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp",
                   "--package", "-p", "--cfg", "-c", "--experimental-rerun"}  # fmt: skip
    flags: list[str] = []
    overrides: list[str] = []
    rest = iter(arguments)
    for word in rest:
        (flags if word.startswith("-") else overrides).append(word)
        if word in takes_value:
            flags += [value for value in [next(rest, None)] if value is not None]
    return [*flags, *overrides]


def hydra_only(command: str, arguments: list[str], action: Action) -> int:
    """Let Hydra parse ``arguments`` and call `job` for each run."""

    def with_config(config: DictConfig) -> int:
        return job(config, action)

    # Hydra would print its own texts and exit with 1; we want the exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    argv, sys.argv = sys.argv, [f"lnexp {command}", *arguments]
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(
            with_config
        )()
    finally:
        sys.argv = argv
    return 0


def job(config: DictConfig, action: Action) -> int:
    """Do ``action`` for one run; return its exit code."""
    experiment = HydraConfig.get().runtime.choices.get("exp")
    try:
        cfg = validate(config)
        resolved: Any = OmegaConf.to_container(config, resolve=True)
        print(action(cfg, resolved, [experiment] if experiment else []), flush=True)
        code = 0
    except InputError as error:
        key = str(error).split(" is no key of this config;")[0]
        given = any(key in override for override in HydraConfig.get().overrides.task)
        hint = f" (+exp={experiment} sets it; drop it with ~{key})"
        code = _complain(f"{error}{'' if given or key == str(error) or not experiment else hint}")
    except BlockingIOError as error:
        code = _complain(str(error), code=1)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        code = _complain(f"{error.strerror or error}{where}; nothing recorded so far is lost", 1)
    except Interrupted as error:
        raise SystemExit(128 + error.number) from None
    codes.append(code)
    return code


def explain(error: Exception, overrides: list[str]) -> str:
    """Say in one line what is wrong with the overrides."""
    text = str(error)
    if match := re.search(r"Could not override '([^']+)'", text):
        key = match[1]
        if key == "exp":
            wrong = next(o for o in overrides if o.startswith("exp="))
            return f"exp is appended, not overridden; write +{wrong}"
        return unknown_key(key, set(known_keys(_plain_config(overrides))))
    if match := re.search(r"Could not find '([^']+)/([^']+)'", text):
        return no_option(match[1], match[2], re.findall(r"(?m)^\t(\S+)$", text))
    if match := re.search(r"Could not load '([^']+)/([^']+)'", text):  # one of a list
        options = sorted(path.stem for path in (conf_dir() / match[1]).glob("*.yaml"))
        return no_option(match[1], match[2], options)
    if "Ambiguous value for argument" in text:
        # An experiment may say itself that it is a sweep, and not be reached for another mistake.
        for group, option in (o.lstrip("+").split("=") for o in overrides if o.count("=") == 1):
            options = sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))
            if options and "," not in option and option not in options:
                return no_option(group, option, options)
        wrong = re.findall(r"Ambiguous value for argument '([^']+)'", text)[0]
        return f"{wrong}: several values make a sweep; add -m, or write a list as KEY=[a,b]"
    if isinstance(error, OverrideParseException) and "~/" in error.override:
        return f"{error.override}: ~ is not expanded here; write $HOME or the whole path"
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override}: an override is KEY=VALUE; quote values that hold ,=[]{{}} or blanks"
        )
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def no_option(group: str, option: str, options: list[str]) -> str:
    """One line for an option that a group does not have."""
    near = difflib.get_close_matches(option, options, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}? " if near else ""
    noun = group.removesuffix("s")
    return f"{group}={option}: there is no such {noun}; {hint}there are: {', '.join(options)}"


def _plain_config(overrides: list[str]) -> dict[str, Any]:
    """Compose the config with the group choices among the overrides only."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    choices = [o for o in overrides if re.match(r"^\+?[a-z]+=\w+$", o) and "." not in o]
    GlobalHydra.instance().clear()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        for attempt in (choices, []):
            try:
                plain: Any = OmegaConf.to_container(compose("config", attempt), resolve=False)
            except (ConfigCompositionException, OmegaConfBaseException, HydraException):
                continue
            return dict(plain)
    return {}


def _complain(text: str, code: int = 2) -> int:
    print(f"lnexp: {text}", file=sys.stderr, flush=True)
    return code
