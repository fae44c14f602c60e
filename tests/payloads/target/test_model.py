"""Features are what the decoder layers put out, and a cropped session reads on as if nothing had been there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from dflash.errors import Refused
from dflash.target.embeddings import Vocabulary, refuse_unusual
from dflash.target.model import Session, Target

IDS = list(b"def read(self, name):\n    return self")


def test_a_feature_is_the_output_of_the_decoder_layer_of_its_number(target: Target) -> None:
    features, _ = target.features(IDS, (0, 2, 3))
    states = target.model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
    assert torch.equal(features, torch.cat([states[layer + 1][0] for layer in (0, 2, 3)], dim=-1))
    assert not torch.allclose(
        features, torch.cat([states[layer][0] for layer in (0, 2, 3)], dim=-1), atol=1e-3
    )


def test_taps_come_in_the_order_of_the_config(target: Target) -> None:
    forth, back = target.features(IDS, (1, 4))[0], target.features(IDS, (4, 1))[0]
    assert torch.equal(forth[:, :80], back[:, 80:])


def test_a_tap_that_does_not_exist_is_refused(target: Target) -> None:
    with pytest.raises(Refused, match="tap 6"):
        target.features(IDS, (0, 6))


def test_no_hook_stays_behind(target: Target) -> None:
    before = [len(layer._forward_hooks) for layer in target.layers]
    target.features(IDS, (0, 2))
    assert [len(layer._forward_hooks) for layer in target.layers] == before


@pytest.mark.parametrize("croppable", [True, False])
def test_a_cropped_session_continues_as_a_fresh_one(target: Target, croppable: bool) -> None:
    session = Session(target, (1, 3))
    session._cached = croppable
    session.feed(IDS[:10])
    session.feed([1, 2, 3, 4])
    session.crop(10)
    features, greedy = session.feed(IDS[10:])
    whole, next_tokens = target.features(IDS, (1, 3))
    assert torch.allclose(features[0], whole[10:], atol=2e-5)
    assert greedy == next_tokens[10:].tolist()


def test_a_recurrent_target_is_read_once_where_nothing_is_cropped(target: Target, monkeypatch: Any) -> None:
    from dflash.target import model as module
    from dflash.target.greedy import greedy

    monkeypatch.setattr(module, "_can_crop", lambda cache: False)
    read, lengths = Target.read, []

    def counted(self: Target, ids: torch.Tensor, *more: Any, **named: Any) -> Any:
        lengths.append(ids.shape[1])
        return read(self, ids, *more, **named)

    monkeypatch.setattr(Target, "read", counted)
    wanted = greedy(target, IDS, 6, ())
    assert lengths == [len(IDS), 1, 1, 1, 1, 1]
    lengths.clear()
    session = Session(target, ())
    tokens = [session.feed(IDS)[1][-1]]
    while len(tokens) < 6:
        tokens.append(session.feed([tokens[-1]])[1][-1])
    assert tokens == wanted
    assert lengths == [len(IDS) + n for n in range(6)], "what may be cropped is read again instead"


def test_the_vocabulary_of_the_files_is_that_of_the_model(target: Target, target_folder: Path) -> None:
    ids = [3, 97, 257]
    read = Vocabulary.read(target_folder, ids, torch.float32)
    assert read.embedding.shape[0] == 3
    assert torch.equal(read.head, target.vocabulary.head)
    asked = torch.tensor([[257, 3], [97, 97]])
    assert torch.equal(read.embed(asked), target.vocabulary.embed(asked))


def test_a_row_outside_the_embedding_is_refused(target_folder: Path) -> None:
    with pytest.raises(Refused, match="token 300 is outside"):
        Vocabulary.read(target_folder, [300], torch.float32)


def test_float16_is_refused(target_folder: Path) -> None:
    with pytest.raises(Refused, match="float16"):
        Target.load(target_folder, torch.float16)


def test_a_head_that_is_more_than_a_product_is_refused() -> None:
    from dflash.target.embeddings import refuse_unusual

    with pytest.raises(Refused, match="final_logit_softcapping"):
        refuse_unusual({"final_logit_softcapping": 30.0})


def test_the_byte_tokenizer_loads_offline_and_turns_text_into_bytes(target_folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(target_folder), local_files_only=True)
    assert tokenizer.encode("aé\n") == [97, 0xC3, 0xA9, 10]
    assert tokenizer.decode(list("naïve 語".encode())) == "naïve 語"
    rendered = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": "hi"}], add_generation_prompt=True, tokenize=False, enable_thinking=t
        )
        for t in (False, True)
    ]
    assert rendered[0] == "<|turn|>user\nhi\n<|turn|>assistant\n"
    assert rendered[1].startswith(rendered[0])
    assert rendered[1] != rendered[0]
    assert tokenizer.encode("<|MASK|>") == [257]


def spoiled(target_folder: Path, tmp_path: Path, spoil: Any) -> Path:
    """A copy of the target whose tensors `spoil` has changed."""
    folder = tmp_path / "target"
    shutil.copytree(target_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    spoil(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("gone", ["lm_head.weight", "model.layers.2.mlp.up_proj.weight"])
def test_a_target_that_lacks_weights_is_refused_not_filled_with_random_ones(
    target_folder: Path, tmp_path: Path, gone: str
) -> None:
    folder = spoiled(target_folder, tmp_path, lambda tensors: tensors.pop(gone))
    with pytest.raises(Refused, match=f"1 weights are missing: {gone}"):
        Target.load(folder, torch.float32)


def test_a_tied_target_needs_no_head_of_its_own(target_folder: Path, tmp_path: Path) -> None:
    folder = spoiled(target_folder, tmp_path, lambda tensors: tensors.pop("lm_head.weight"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    loaded = Target.load(folder, torch.float32)
    assert torch.equal(loaded.vocabulary.head, loaded.vocabulary.embedding)
    assert torch.equal(Vocabulary.read(folder, None, torch.float32).head, loaded.vocabulary.head)


def test_a_target_of_another_shape_or_cut_short_is_refused(target_folder: Path, tmp_path: Path) -> None:
    def shrink(tensors: Any) -> None:
        tensors["model.norm.weight"] = torch.zeros(3)

    folder = spoiled(target_folder, tmp_path, shrink)
    with pytest.raises(Refused, match="not a loadable target"):
        Target.load(folder, torch.float32)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(Refused, match="not a loadable target"):
        Target.load(folder, torch.float32)


@pytest.mark.parametrize("config", [{"model_type": "gemma3_text"}, {"text_config": {"model_type": "gemma2"}}])
def test_a_target_that_scales_its_embeddings_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="gemma scales"):
        refuse_unusual(config)


def test_a_head_with_a_bias_is_refused(target_folder: Path, tmp_path: Path) -> None:
    def add(tensors: Any) -> None:
        tensors["lm_head.bias"] = torch.zeros(260)

    with pytest.raises(Refused, match="bias"):
        Vocabulary.read(spoiled(target_folder, tmp_path, add), None, torch.float32)
