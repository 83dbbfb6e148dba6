"""MLXLanguageModel, under the names of vllm_mlx.models.llm."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..generate import TokenStream
from ..generate import stream_generate as _stream_generate
from ..model import Model
from ..sample_utils import make_logits_processors, make_sampler
from ..tokenizer_utils import TokenizerWrapper
from ..utils import load

__all__ = ["GenerationOutput", "MLXLanguageModel", "StreamingOutput"]

logger = logging.getLogger(__name__)


@dataclass
class GenerationOutput:
    """The result of a generation."""

    text: str
    tokens: list[int]  #: the ids generated, an ending EOS included
    finish_reason: str | None = None


@dataclass
class StreamingOutput:
    """One step of a generation; the last is ``finished``."""

    text: str  #: the new text
    token: int
    finished: bool = False
    finish_reason: str | None = None
    prompt_tokens: int = 0


class MLXLanguageModel:
    """Loads a model at the first call, generates, streams and chats. Safe to use from many threads."""

    def __init__(
        self,
        model_name: str,
        tokenizer_name: str | None = None,
        trust_remote_code: bool = False,
        mtp: bool = False,
        mtp_num_draft_tokens: int = 1,
        **load_options: Any,
    ) -> None:
        """load_options: keywords of ``mlxlm.load``, e.g. precision="exact"."""
        self.model_name = model_name
        self.tokenizer_name = tokenizer_name or model_name
        self.trust_remote_code = trust_remote_code
        self.model: Model | None = None
        self.tokenizer: TokenizerWrapper | None = None
        self._mtp = mtp
        self._mtp_num_draft_tokens = mtp_num_draft_tokens
        self._load_options = load_options
        self._loaded = False
        self._lock = threading.Lock()

    def load(self) -> None:
        """Loads the model now; does nothing when it is loaded."""
        with self._lock:
            if self._loaded:
                return
            if self._mtp:
                raise NotImplementedError(f"{self.model_name}: mtp needs multi-token-prediction heads; leave it off")
            # The template of these models ends a turn with <|im_end|>, which early configs did not name.
            config = {"eos_token": "<|im_end|>"} if "qwen3" in self.model_name.lower() else {}
            logger.info("loading %s", self.model_name)
            self.model, self.tokenizer = load(self.model_name, config, **self._load_options)
            if self.tokenizer_name != self.model_name:
                self.tokenizer = load(self.tokenizer_name, config, **self._load_options)[1]
            self._loaded = True

    def _open(
        self,
        prompt: Any,
        max_tokens: int,
        temperature: float,
        top_p: float,
        top_k: int,
        min_p: float,
        presence_penalty: float,
        repetition_penalty: float,
        stop: Sequence[str] | None,
        logits_processors: Sequence[Callable[[Any, Any], Any]] | None,
        options: Mapping[str, Any],
    ) -> TokenStream:
        self.load()
        assert self.model is not None and self.tokenizer is not None
        penalties = make_logits_processors(
            repetition_penalty=repetition_penalty if repetition_penalty != 1.0 else None,
            presence_penalty=presence_penalty or None,
        )
        return _stream_generate(
            self.model,
            self.tokenizer,
            prompt,
            max_tokens,
            sampler=make_sampler(temperature, top_p, min_p, top_k=top_k),
            logits_processors=[*(logits_processors or []), *penalties],
            stop=stop,
            logprobs=False,
            **options,
        )

    def generate(
        self,
        prompt: Any,
        max_tokens: int = 256,
        temperature: float = 0.7,
        top_p: float = 0.9,
        top_k: int = 0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        stop: Sequence[str] | None = None,
        logits_processors: Sequence[Callable[[Any, Any], Any]] | None = None,
        *,
        prompt_cache: Any = None,
        seed: int | None = None,
    ) -> GenerationOutput:
        """Generates a text. ``logits_processors`` come before the penalties."""
        options = {"prompt_cache": prompt_cache, "seed": seed}
        stream = self._open(
            prompt, max_tokens, temperature, top_p, top_k, min_p, presence_penalty, repetition_penalty, stop,
            logits_processors, options,
        )  # fmt: skip
        output = GenerationOutput("", [])
        for response in stream:
            output.text += response.text
            if response.generation_tokens > len(output.tokens):
                output.tokens.append(response.token)
            output.finish_reason = response.finish_reason
        return output

    def stream_generate(
        self,
        prompt: Any,
        max_tokens: int = 256,
        temperature: float = 0.7,
        top_p: float = 0.9,
        top_k: int = 0,
        min_p: float = 0.0,
        presence_penalty: float = 0.0,
        repetition_penalty: float = 1.0,
        stop: Sequence[str] | None = None,
        logits_processors: Sequence[Callable[[Any, Any], Any]] | None = None,
        prompt_cache: Any = None,
        *,
        seed: int | None = None,
    ) -> Iterator[StreamingOutput]:
        """Generates a text, an output for each token."""
        options = {"prompt_cache": prompt_cache, "seed": seed}
        stream = self._open(
            prompt, max_tokens, temperature, top_p, top_k, min_p, presence_penalty, repetition_penalty, stop,
            logits_processors, options,
        )  # fmt: skip
        return (
            StreamingOutput(r.text, r.token, r.finish_reason is not None, r.finish_reason, r.prompt_tokens)
            for r in stream
        )

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        max_tokens: int = 256,
        temperature: float = 0.7,
        top_p: float = 0.9,
        tools: Sequence[Any] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> GenerationOutput:
        """Answers a conversation; further keywords are those of ``generate``."""
        self.load()
        assert self.tokenizer is not None
        prompt: Any
        if self.tokenizer.has_chat_template:
            prompt = self.tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=True, **(chat_template_kwargs or {})
            )
        else:
            prompt = "\n".join(f"{m['role']}: {m['content']}" for m in messages) + "\nassistant:"
        return self.generate(prompt, max_tokens, temperature, top_p, **kwargs)

    def get_model_info(self) -> dict[str, Any]:
        if self.model is None:
            return {"loaded": False, "model_name": self.model_name}
        info = self.model.info
        return {
            "loaded": True,
            "model_name": self.model_name,
            "tokenizer_name": self.tokenizer_name,
            "vocab_size": info["vocab_size"],
            "hidden_size": info["hidden_size"],
            "num_layers": info["n_layers"],
            "num_heads": info["n_heads"],
        }

    def __repr__(self) -> str:
        return f"<MLXLanguageModel model={self.model_name} status={'loaded' if self._loaded else 'not loaded'}>"
