"""Finding a model by its name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from edgewise.adapters.models import model
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.messages import AssistantMessage
from edgewise.statemachine.ports import ModelRequest


class Mine:
    name = "mine"

    async def reply(self, request: ModelRequest, draft: Draft) -> AssistantMessage:
        return draft.finish()


def test_a_model_is_given_back_as_it_is():
    mine = Mine()
    assert model(mine) is mine


def test_a_name_finds_its_adapter_and_options_go_there():
    found = model("openai:gpt-5-mini", provider="mine")
    assert found.name == "mine:gpt-5-mini"


@pytest.mark.parametrize("spec", ["/some/where/tiny.gguf", "local:/some/where/tiny.gguf"])
def test_the_path_of_a_weights_file_may_stand_alone(spec):
    assert "tiny" in model(spec).name


def test_only_the_first_colon_parts_provider_and_name():
    assert model("openai:qwen2.5:7b").name == "openai:qwen2.5:7b"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("opnai:gpt-5-mini", "no provider is called 'opnai'. Did you mean openai? There are: local, openai"),
        ("OpenAI:gpt-5-mini", "Did you mean openai?"),
        ("locale", "Did you mean local?"),
        ("gpt-5-mini", "as in 'openai:gpt-5-mini'. There are: local, openai"),
        ("mistral:large", "no provider is called 'mistral'. There are: local, openai"),
        ("", "There are: local, openai"),
        ("scripted", "A scripted model has no name"),
        ("openai", "'openai' says no model's name; it should look like 'openai:gpt-5-mini'"),
        ("openai:", "should look like 'openai:gpt-5-mini'"),
    ],
)
def test_a_wrong_name_is_told_what_there_is(spec, says):
    with pytest.raises(MisuseError) as caught:
        model(spec)
    assert says in str(caught.value)


@pytest.mark.parametrize("thing", [None, 7, object(), Mine])
def test_what_is_no_model_is_refused(thing):
    with pytest.raises(MisuseError, match="an object with reply"):
        model(thing)


def test_options_for_a_model_that_is_made_already_are_refused():
    with pytest.raises(MisuseError, match="temperature"):
        model(Mine(), temperature=0)


@pytest.mark.parametrize(("spec", "extra"), [("openai:gpt-5-mini", "openai"), ("local", "local")])
def test_a_missing_extra_says_what_to_install(monkeypatch, spec, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MisuseError) as caught:
        model(spec)
    assert f'pip install "edgewise[{extra}]"' in str(caught.value)


def test_adapters_are_imported_only_when_asked_for():
    code = (
        "import sys; from edgewise.adapters.models import model\n"
        "heavy = {'openai', 'httpx2', 'pydantic', 'xllamacpp'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "model('openai:x'); assert 'openai' in sys.modules and 'xllamacpp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
