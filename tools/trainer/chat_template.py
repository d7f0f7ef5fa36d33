"""The chat template: as Jinja2 for tokenizer_config.json, and in Python for training."""

import json

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>"]
TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n' }}{%- endif %}
{{- 'You may call these tools:\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nWrite a call as <tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- elif m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}{%- if m.content %}{{- m.content }}{%- endif %}
{%- for c in m.tool_calls or [] %}{%- if c.function %}{%- set c = c.function %}{%- endif %}
{{- '<tool_call>\\n{"name": "' + c.name + '", "arguments": ' }}
{%- if c.arguments is string %}{{- c.arguments }}{%- else %}{{- c.arguments | tojson }}{%- endif %}{{- '}\\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif m.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}{%- endif %}
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def assistant_text(m):
    """What the assistant writes: its text and calls of tools."""
    return (m["content"] or "") + "".join(
        '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
        % (c["function"]["name"], json.dumps(c["function"]["arguments"]))
        for c in m.get("tool_calls", [])
    )


def render(messages, tools=None, compact=False):
    """The chat template in Python, as pieces (text, whether it is the assistant's); evaluation.py compares with TEMPLATE.

    `compact`: tools without spaces in their JSON, as some servers write them.
    """
    out, text = [], ""
    if tools:
        lines = [json.dumps(t, separators=(",", ":")) if compact else json.dumps(t) for t in tools]
        text = (
            "<|im_start|>system\nYou may call these tools:\n<tools>\n"
            + "\n".join(lines)
            + '\n</tools>\nWrite a call as <tool_call>{"name": '
            '..., "arguments": {...}}</tool_call><|im_end|>\n'
        )
    for m in messages:
        if m["role"] == "assistant":
            out += [(text + "<|im_start|>assistant\n", False), (assistant_text(m) + "<|im_end|>", True)]
            text = "\n"
        elif m["role"] == "tool":
            text += f"<|im_start|>user\n<tool_response>\n{m['content']}\n</tool_response><|im_end|>\n"
        else:
            text += f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n"
    return out
