"""The official Python clients against a router: what they get must be what the engine said."""
import asyncio
import sys

import anthropic
import openai

BASE = sys.argv[1]
oai = openai.OpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0)
claude = anthropic.Anthropic(base_url=BASE, api_key="any", max_retries=0)
TEXT = "put >= userKINGive} he"
STREAMED = "put >= userKINGive"
ASK = [{"role": "user", "content": "Say hello."}]
WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def chat(**more):
    return oai.chat.completions.create(**{"model": "tiny", "messages": ASK} | more)


def whole_answer():
    answer = chat()
    assert answer.choices[0].message.content == TEXT, answer
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def streamed_answer():
    events = list(chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == STREAMED, text
    assert events[-1].usage.completion_tokens == 6


def tools():
    call = chat(tools=TOOLS, tool_choice=NAMED).choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather", call
    events = list(chat(tools=TOOLS, tool_choice=NAMED, stream=True))
    calls = [call for event in events if event.choices for call in event.choices[0].delta.tool_calls or []]
    assert calls[0].function.name == "get_weather", calls


def completions_models_and_responses():
    assert oai.completions.create(model="tiny", prompt="hello").choices[0].text
    assert [model.id for model in oai.models.list()] == ["tiny"]
    answer = oai.responses.create(model="tiny", input="Say hello.")
    assert answer.output_text.startswith("put >= user"), answer
    kinds = [event.type for event in oai.responses.create(model="tiny", input="Say hello.", stream=True)]
    assert kinds[0] == "response.created" and kinds[-1] in ("response.completed", "response.incomplete"), kinds


def errors_keep_their_class():
    asked = [({"user": "too-long"}, openai.BadRequestError, 400), ({"model": "nope"}, openai.NotFoundError, 404)]
    for ask, kind, status in asked:
        try:
            chat(**ask)
        except kind as error:
            assert error.status_code == status and error.body["message"], error
        else:
            raise AssertionError(f"{ask} should fail")
    try:
        oai.post(f"{BASE}/flush_cache", cast_to=object)
    except openai.PermissionDeniedError as error:
        assert error.body["code"] == "admin_path", error.body
    else:
        raise AssertionError("an admin path is closed")


def messages():
    answer = claude.messages.create(model="tiny", max_tokens=4, system="Be kind.", messages=ASK)
    assert answer.content[0].text == "put >= user >>>", answer
    with claude.messages.stream(model="tiny", max_tokens=4, messages=ASK) as stream:
        assert "".join(stream.text_stream) == "put >= user >>>"
    assert claude.messages.count_tokens(model="tiny", messages=ASK).input_tokens == 17
    try:
        claude.messages.create(model="tiny", max_tokens=4, messages=ASK, metadata={"user_id": "gone"})
    except anthropic.APIStatusError as error:
        assert error.status_code == 502 and error.body["type"] == "error", error.body
    else:
        raise AssertionError("the engine closed without an answer")


def a_stream_that_is_left():
    stream = chat(user="endless", stream=True)
    for _ in range(3):
        next(stream)
    stream.close()


def many_at_once():
    async def all_of_them():
        client = openai.AsyncOpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0)
        asks = (client.chat.completions.create(model="tiny", messages=ASK) for _ in range(50))
        return await asyncio.gather(*asks)

    assert {answer.choices[0].message.content for answer in asyncio.run(all_of_them())} == {TEXT}


CHECKS = [
    whole_answer, streamed_answer, tools, completions_models_and_responses, errors_keep_their_class, messages,
    a_stream_that_is_left, many_at_once,
]
for check in CHECKS:
    check()
    print(f"python: {check.__name__}")
