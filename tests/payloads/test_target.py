"""Features are what the decoder layers put out, and a cropped session reads on as if nothing had been there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from refusal import Refused
from target import Session, Target
from vocabulary import Vocabulary

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
    import target as module
    from generate import greedy

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
    from vocabulary import refuse_unusual

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
