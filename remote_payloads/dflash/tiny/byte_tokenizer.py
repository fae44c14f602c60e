"""A tokenizer whose token ids are bytes, with a chat template: for tiny targets, saved as a Hugging Face one."""

from __future__ import annotations

from pathlib import Path

BYTES = 256
TURN = 256  # a tiny target's chat marker
MASK = 257  # never in any text: the drafter's mask
EOS = 258
SPARE = 259
SIZE = 260
SPECIAL = {TURN: "<|turn|>", MASK: "<|MASK|>", EOS: "<|endoftext|>", SPARE: "<|spare|>"}

# Plain text with a marker per turn; thinking is a visible line, so that the flag changes the prompt.
TEMPLATE = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking %}# let me think\n{% endif %}{% endif %}"
)


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte in byte-level tokenizers, by byte value."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(BYTES)]


def save(folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE(vocab={letter: b for b, letter in enumerate(byte_letters())}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(SPECIAL[i], special=True) for i in range(BYTES, SIZE)])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core,
        eos_token=SPECIAL[EOS],
        pad_token=SPECIAL[EOS],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(str(folder))
