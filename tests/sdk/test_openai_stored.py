"""Stored chat completions by OpenAI's SDK."""

import openai
import pytest
from conversations import DUCK, MODEL, TOOLS
from test_openai_errors import BAD, TYPE


def stored(client, name, **more):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": DUCK, "temperature": 0, "max_tokens": 4, "store": True,
           "metadata": {"test": "stored", "name": name}, **more})


def test_chat_completions_are_stored_listed_changed_and_deleted(openai_client):
    chats = openai_client.chat.completions
    first = stored(openai_client, "first", n=2, temperature=1, seed=3)
    events = list(stored(openai_client, "second", stream=True))
    third = stored(openai_client, "third", tools=TOOLS, tool_choice="required", max_tokens=300)
    ids = [first.id, events[0].id, third.id]
    assert chats.retrieve(first.id).choices == first.choices
    streamed = chats.retrieve(ids[1])
    assert streamed.choices[0].message.content == "".join(
        event.choices[0].delta.content or "" for event in events if event.choices)
    assert streamed.metadata == {"test": "stored", "name": "second"}

    ours = {"test": "stored"}
    assert [chat.id for chat in chats.list(metadata=ours)] == ids
    assert [chat.id for chat in chats.list(metadata=ours, order="desc", limit=1)] == ids[::-1]
    assert [chat.id for chat in chats.list(metadata={**ours, "name": "third"})] == ids[2:]
    assert [chat.id for chat in chats.list(metadata=ours, model="other")] == []

    changed = chats.update(first.id, metadata={"name": "changed"})
    assert changed.metadata == {"name": "changed"} and changed.choices == first.choices
    assert [chat.id for chat in chats.list(metadata=ours)] == ids[1:]

    for chat_id in ids:
        assert chats.delete(chat_id).deleted
        for call in (chats.retrieve, chats.delete, chats.messages.list,
                     lambda gone: chats.update(gone, metadata={})):
            with pytest.raises(openai.NotFoundError) as caught:
                call(chat_id)
            assert (caught.value.type, caught.value.param) == (TYPE, "completion_id")


def test_the_messages_of_a_stored_chat_are_listed_by_pages(openai_client):
    called = stored(openai_client, "calls", tools=TOOLS, tool_choice="required", max_tokens=300,
                    parallel_tool_calls=False)
    call = called.choices[0].message.tool_calls[0]
    messages = [*DUCK, called.choices[0].message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}]
    chat = stored(openai_client, "messages", messages=messages)
    listed = openai_client.chat.completions.messages.list
    pages = list(listed(chat.id, limit=2))
    assert [message.content for message in pages] == [DUCK[0]["content"], None, "12 degrees"]
    assert pages[1].tool_calls[0].function == call.function
    assert [message.id for message in listed(chat.id, order="desc")] == [
        message.id for message in pages[::-1]]
    for answer in (called, chat):
        openai_client.chat.completions.delete(answer.id)


@pytest.mark.parametrize("case, call", {
    "limit": lambda chats: chats.list(limit=101),
    "order": lambda chats: chats.list(order="up"),
    "after": lambda chats: chats.list(after="nobody"),
}.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_wrong_in_a_query_is_refused_by_name(openai_client, case, call):
    with pytest.raises(BAD) as caught:
        call(openai_client.chat.completions)
    assert (caught.value.type, caught.value.param) == (TYPE, case)


def test_metadata_out_of_bounds_is_refused_by_name(openai_client):
    for metadata in ({"k" * 65: "v"}, {"k": "v" * 513}, {str(i): "v" for i in range(17)}):
        with pytest.raises(BAD) as caught:
            stored(openai_client, "", metadata=metadata)
        assert caught.value.param.startswith("metadata")
