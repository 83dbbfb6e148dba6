"""Prompt caches and MLXLanguageModel."""
