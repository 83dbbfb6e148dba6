"""Extracts data as JSON that follows a schema: extract_json.py MODEL"""

import json
import sys

from mlxlm import generate, load
from mlxlm.processors import json_schema

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 30},
        "inhabitants": {"type": "integer", "minimum": 0, "maximum": 100000000},
        "coastal": {"type": "boolean"},
    },
    "required": ["city", "inhabitants", "coastal"],
    "additionalProperties": False,
}

model, tokenizer = load(sys.argv[1])
text = "Lisbon lies where the Tagus meets the Atlantic; about 550,000 people live there."
question = f"Give city, inhabitants and coastal as JSON. {text}"
prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
constraint = json_schema(tokenizer, SCHEMA)
answer = generate(model, tokenizer, prompt, max_tokens=1000, logits_processors=[constraint])
print(json.loads(answer))
