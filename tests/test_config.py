"""The shipped configs compose; identity is what can change a result and nothing else."""

import dataclasses
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import given, settings
from hypothesis import strategies as st

from lnexp.config import RunConfig, conf_dir, readable_name, scientific
from lnexp.errors import InputError
from lnexp.identity import identity_hash
from lnexp.validate import validate

EXPERIMENTS = sorted(p.stem for p in (conf_dir() / "exp").glob("*.yaml"))
RECIPES = sorted(p.stem for p in (conf_dir() / "recipe").glob("*.yaml"))
FOUR = ["preln_nowarmup", "preln_warmup", "postln_nowarmup", "postln_warmup"]
FILES = ["recipe=files", "data.src=de", "data.tgt=en"]


def composed(*overrides):
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        return validate(compose("config", list(overrides)))


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_experiment_composes_with_every_recipe(experiment, recipe):
    languages = FILES[1:] if recipe == "files" else []
    cfg = composed(f"+exp={experiment}", f"recipe={recipe}", *languages)
    assert cfg.recipe.name == recipe
    if experiment not in FOUR:
        return
    placement = "PostLN" if experiment.startswith("post") else "PreLN"
    assert cfg.placement["_target_"].endswith(placement)
    anchor = cfg.recipe.warmup
    warmup = 1 if experiment.endswith("nowarmup") else anchor
    assert (cfg.schedule["warmup"], cfg.schedule["anchor"]) == (warmup, anchor)


@pytest.mark.parametrize(
    "option",
    [
        f"{group.name}={path.stem}"
        for group in conf_dir().iterdir()
        if group.is_dir() and group.name not in ("exp", "recipe", "hydra")
        for path in sorted(group.glob("*.yaml"))
    ],
)
def test_every_option_of_every_group_composes(option):
    composed(option, *(["schedule.drop_at=5"] if option == "schedule=step" else []))


def test_the_four_experiments_differ_in_the_question_only():
    configs = [scientific(composed(f"+exp={name}")) for name in FOUR]
    for config in configs:
        config.pop("placement"), config.pop("schedule")
    assert configs == [configs[0]] * 4


def leaves(cls=RunConfig, prefix=""):
    for f in dataclasses.fields(cls):
        if dataclasses.is_dataclass(f.default_factory):
            yield from leaves(f.default_factory, f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", bool(f.metadata.get("execution"))


SCIENTIFIC = [key for key, execution in leaves() if not execution]
EXECUTION = [key for key, execution in leaves() if execution]
BASE = composed("recipe=multi30k")
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)  # fmt: skip


def changed(key, value):
    """BASE with one key set to a value, past the rules that a user would meet."""
    copy = dataclasses.replace(BASE)
    *groups, name = key.split(".")
    owner = copy
    for group in groups:
        inner = dataclasses.replace(getattr(owner, group))
        setattr(owner, group, inner)
        owner = inner
    before = getattr(owner, name)
    setattr(owner, name, value)
    return copy, before


def same_number(a, b):
    return isinstance(a, (int, float)) and isinstance(b, (int, float)) and a == b


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SCIENTIFIC), VALUES)
def test_runs_that_differ_in_a_scientific_key_never_share_a_directory(key, value):
    other, before = changed(key, value)
    differ = value != before or (isinstance(value, bool) != isinstance(before, bool))
    hashes = identity_hash(scientific(other)) != identity_hash(scientific(BASE))
    assert hashes == differ


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(EXECUTION), VALUES)
def test_runs_that_differ_in_execution_keys_only_are_the_same_run(key, value):
    other, _ = changed(key, value)
    assert identity_hash(scientific(other)) == identity_hash(scientific(BASE))


def test_execution_keys_are_these():
    assert set(EXECUTION) == {
        "recipe.lr", "recipe.warmup",  # what they come to stands in optimizer and schedule
        "data.source", "data.hub", "data.hub_config", "data.revision", "data.path", "data.train",
        "data.valid", "data.test", "data.split_names", "data.cache_dir", "data.archive",
        "data.prepared", "data.tokenize", "data.lowercase", "data.min_words", "data.max_words",
        "data.max_ratio", "data.valid_every", "data.codes",  # all of these count by content
        "train.updates", "train.log_every", "train.checkpoint_every", "train.keep_weights",
        "decode.batch_tokens",
        "init_from",  # its weights count, not where they lie
        "probes", "runs_dir", "repeat", "dry_run", "device", "threads",
    }  # fmt: skip


def test_a_schedule_that_needs_the_end_makes_updates_scientific():
    a, b = (composed("schedule=linear", f"train.updates={n}") for n in (100, 200))
    assert scientific(a) != scientific(b)
    a, b = (composed("schedule=inverse_sqrt", f"train.updates={n}") for n in (100, 200))
    assert scientific(a) == scientific(b)


@given(st.dictionaries(st.text(), VALUES, max_size=6))
def test_the_order_of_keys_does_not_matter(config):
    assert identity_hash(config) == identity_hash(dict(reversed(config.items())))


def test_readable_name_says_what_is_compared():
    cfg = composed("+exp=postln_nowarmup", "optimizer=radam", "seed=3", "optimizer.lr=5e-4")
    assert readable_name(cfg) == "post_ln-radam-inverse_sqrt-warmup1-lr0.0005-seed3"


def test_configs_are_found_beside_the_package():
    assert conf_dir() == Path(__file__).parents[1] / "conf"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+schedule.warmpu=1", r"schedule\.warmpu is no key of this config; did you mean schedule\.warmup"),
        ("+optimizer.momentun=1", r"optimizer\.momentun is no key of this config"),
        ("+trian.updates=1", r"trian is no key of this config; did you mean train"),
        ("+model.dropuot=1", r"model\.dropuot is no key .* did you mean model\.dropout"),
        ("+schedule.shape=1", r"schedule\.shape is no key"),
        ("+placement.shape=1", r"placement\.shape is no key"),
        ("model.d_model=30", r"model\.d_model=30 must be even and a multiple of model\.n_heads=4"),
        ("model.dropout=1.0", r"model\.dropout=1\.0 must be in \[0, 1\)"),
        ("train.updates=0", r"train\.updates=0 must be at least 1"),
        ("train.precision=fp16", r"train\.precision=fp16 must be fp32 or bf16"),
        ("train.updates=many", r"train\.updates=many: a whole number is needed"),
        ("train.clip_norm=0", r"train\.clip_norm=0\.0 must be above 0; null measures"),
        ("schedule=step", r"schedule\.drop_at: |schedule\.drop_at has no value"),
        ("data.src=en", r"data\.tgt=en must differ from data\.src"),
        ("placement._target_=lnexp.model.placement.PostLM", r"placement\._target_=.*cannot be loaded"),
        ("seed=-1", r"seed=-1 must be from 0 to 2\^63 - 1"),
        ("decode.beam=0", r"decode\.beam=0 must be at least 1"),
        ("recipe=files", r"data\.src has no value; set data\.src=VALUE"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_in_one_line(override, message):
    with pytest.raises(InputError, match=message) as caught:
        composed(override)
    assert "\n" not in str(caught.value)


def test_the_recipe_numbers_count_where_they_are_used():
    a, b = (composed(f"{key}.lr=5e-4") for key in ("recipe", "optimizer"))
    assert scientific(a) == scientific(b) != scientific(composed())
