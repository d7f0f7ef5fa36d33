// Calls by OpenAI's SDK for JavaScript. Node.js 18 has the tests' runner and fetch:
//   node openai_calls.mjs URL FILE    the server; where exchanges are written, a JSON object a line
import assert from 'node:assert/strict';
import { appendFileSync } from 'node:fs';
import OpenAI from 'openai';

const [url, file] = process.argv.slice(2);
const model = 'baton-demo';
const messages = [{ role: 'user', content: 'Tell me about a duck.' }];
const cold = { model, messages, temperature: 0, max_tokens: 60 };
const weather = {
  type: 'function',
  function: {
    name: 'weather',
    parameters: {
      'x-guidance': { whitespace_flexible: false },
      type: 'object',
      properties: { city: { enum: ['Rome', 'Oslo'] } },
      required: ['city'],
      additionalProperties: false,
    },
  },
};

// Writes down each exchange once its answer was read to the end.
const recording = [];
async function recordedFetch(input, init) {
  const response = await fetch(input, init);
  const [ours, theirs] = response.body === null ? [null, null] : response.body.tee();
  const exchange = {
    client: 'openai-js',
    method: init.method,
    path: new URL(input).pathname,
    request: init.body ?? '',
    status: response.status,
    headers: Object.fromEntries(response.headers),
    is_whole: true,
  };
  recording.push(
    new Response(ours).text().then((body) => {
      appendFileSync(file, JSON.stringify({ ...exchange, body }) + '\n');
    }),
  );
  return new Response(theirs, response);
}

const client = new OpenAI({ baseURL: url + '/v1', apiKey: 'none', maxRetries: 0, fetch: recordedFetch });

async function joined(stream) {
  const choices = [];
  let usage = null;
  for await (const chunk of stream) {
    usage = chunk.usage ?? usage;
    for (const { index, delta, text, finish_reason } of chunk.choices) {
      choices[index] ??= { content: '', finish: null };
      choices[index].content += delta?.content ?? text ?? '';
      choices[index].finish ??= finish_reason;
    }
  }
  return { choices, usage };
}

async function refusal(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error('not refused');
}

// A stream joins to the answer that comes whole.
for (const more of [{}, { n: 3, temperature: 1.4, seed: 5, max_tokens: 12 }, { stop: [' know'] }]) {
  const whole = await client.chat.completions.create({ ...cold, ...more });
  const { choices, usage } = await joined(
    await client.chat.completions.create({
      ...cold, ...more, stream: true, stream_options: { include_usage: true },
    }),
  );
  assert.deepEqual(choices.map(({ content }) => content), whole.choices.map(({ message }) => message.content));
  assert.deepEqual(choices.map(({ finish }) => finish), whole.choices.map((choice) => choice.finish_reason));
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(whole._request_id);
}

{
  const fields = { model, prompt: 'A duck is', temperature: 0, max_tokens: 8, logprobs: 2 };
  const whole = await client.completions.create(fields);
  assert.equal(whole.choices[0].logprobs.tokens.length, 8);
  const { choices } = await joined(await client.completions.create({ ...fields, stream: true }));
  assert.equal(choices[0].content, whole.choices[0].text);
}

{
  const answer = await client.chat.completions.create({ ...cold, max_tokens: 6, logprobs: true, top_logprobs: 3 });
  const tokens = answer.choices[0].logprobs.content;
  assert.equal(tokens.map(({ token }) => token).join(''), answer.choices[0].message.content);
  assert.ok(tokens.every(({ top_logprobs }) => top_logprobs.length === 3));
}

{
  const called = await client.chat.completions.create({ ...cold, tools: [weather], tool_choice: 'required', parallel_tool_calls: false });
  const [call] = called.choices[0].message.tool_calls;
  assert.ok(['Rome', 'Oslo'].includes(JSON.parse(call.function.arguments).city));
  const final = await client.chat.completions
    .stream({ ...cold, tools: [weather], tool_choice: { type: 'function', function: { name: 'weather' } } })
    .finalChatCompletion();
  assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
}

{
  const schema = { ...weather.function.parameters };
  const parsed = await client.chat.completions.parse({
    ...cold,
    response_format: { type: 'json_schema', json_schema: { name: 'city', strict: true, schema } },
  });
  assert.ok(['Rome', 'Oslo'].includes(JSON.parse(parsed.choices[0].message.content).city));
}

{
  const { data, request_id } = await client.chat.completions.create({ ...cold, max_tokens: 3 }).withResponse();
  assert.equal(data.id, `chatcmpl-${request_id}`);
}

{
  const ids = [];
  for await (const { id } of client.models.list()) ids.push(id);
  assert.equal(ids.length, 2);
  assert.equal((await client.models.retrieve(ids[1])).id, ids[1]);
}

// /v1/responses: a stream ends with the answer that comes whole, which is stored.
const told = (response) =>
  response.output.map((item) => [item.type, item.status, item.name, item.arguments, item.content?.map(({ text }) => text)]);
const short = { model, input: messages, temperature: 0, max_output_tokens: 6 };
const weatherTool = { type: 'function', strict: true, ...weather.function };

for (const more of [{}, { top_logprobs: 2 }, { tools: [weatherTool], tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 60 }]) {
  const whole = await client.responses.create({ ...short, ...more });
  const streamed = await client.responses.stream({ ...short, ...more }).finalResponse();
  assert.deepEqual(told(streamed), told(whole));
  assert.equal(streamed.status, whole.status);
  assert.deepEqual(told(await client.responses.retrieve(whole.id)), told(whole));
}

{
  const format = { type: 'json_schema', name: 'city', strict: true, schema: weather.function.parameters };
  const parsed = await client.responses.parse({ ...short, max_output_tokens: 60, text: { format } });
  assert.ok(['Rome', 'Oslo'].includes(parsed.output_parsed.city));
  const next = await client.responses.create({ ...short, input: 'And?', previous_response_id: parsed.id });
  const items = [];
  for await (const item of client.responses.inputItems.list(next.id)) items.push(item);
  assert.deepEqual(items.map(({ content }) => content[0].text), ['And?']);
  await client.responses.delete(parsed.id);
  const error = await refusal(() => client.responses.retrieve(parsed.id));
  assert.ok(error instanceof OpenAI.NotFoundError, String(error));
}

{
  const numbers = { type: 'array', items: { enum: [1, 2] }, minItems: 1500 };
  const tool = { ...weatherTool, parameters: { type: 'object', properties: { numbers }, required: ['numbers'] } };
  const long = { ...short, tools: [tool], tool_choice: 'required', max_output_tokens: 3500 };
  let last;
  // A client that the machine holds up may ask too late, which is refused: it asks anew.
  for (let tries = 0; tries < 5 && last?.response.status !== 'cancelled'; ++tries) {
    for await (const event of await client.responses.create({ ...long, stream: true })) {
      last = event;
      if (event.type !== 'response.created') continue;
      try {
        assert.equal((await client.responses.cancel(event.response.id)).status, 'cancelled');
      } catch (error) {
        assert.match(String(error), /400 This response has ended/);
      }
    }
  }
  assert.deepEqual([last.type, last.response.status], ['response.incomplete', 'cancelled']);
}

{
  const metadata = { from: 'javascript' };
  const chat = await client.chat.completions.create({ ...cold, max_tokens: 3, store: true, metadata });
  const ids = [];
  for await (const { id } of client.chat.completions.list({ metadata })) ids.push(id);
  assert.deepEqual(ids, [chat.id]);
  assert.deepEqual((await client.chat.completions.retrieve(chat.id)).choices, chat.choices);
  const changed = await client.chat.completions.update(chat.id, { metadata: { from: 'a change' } });
  assert.deepEqual(changed.metadata, { from: 'a change' });
  const asked = await client.chat.completions.messages.list(chat.id);
  assert.deepEqual(asked.data.map(({ content }) => content), [messages[0].content]);
  assert.ok((await client.chat.completions.delete(chat.id)).deleted);
}

for (const [call, kind, status, type, code, param] of [
  [() => client.chat.completions.create({ ...cold, n: 13 }),
    OpenAI.BadRequestError, 400, 'invalid_request_error', 'invalid_value', 'n'],
  [() => client.chat.completions.create({ ...cold, temperature: 9, stream: true }),
    OpenAI.BadRequestError, 400, 'invalid_request_error', 'invalid_value', 'temperature'],
  [() => client.completions.create({ model: 'nobody', prompt: 'a' }),
    OpenAI.NotFoundError, 404, 'invalid_request_error', 'model_not_found', 'model'],
  [() => client.responses.create({ ...short, temperature: 9 }),
    OpenAI.BadRequestError, 400, 'invalid_request_error', 'invalid_value', 'temperature'],
  [() => client.responses.create({ ...short, tools: [{ type: 'web_search' }], stream: true }),
    OpenAI.BadRequestError, 400, 'invalid_request_error', 'unsupported_parameter', 'tools[0].type'],
  [() => client.responses.create({ ...short, previous_response_id: 'resp_none' }),
    OpenAI.NotFoundError, 404, 'invalid_request_error', 'previous_response_not_found', 'previous_response_id'],
  [() => client.chat.completions.retrieve('chatcmpl-none'),
    OpenAI.NotFoundError, 404, 'invalid_request_error', null, 'completion_id'],
  [() => client.embeddings.create({ model, input: 'a' }),
    OpenAI.InternalServerError, 501, 'server_error', 'not_supported', null],
  [() => client.files.list(),
    OpenAI.NotFoundError, 404, 'invalid_request_error', 'not_found', null],
]) {
  const error = await refusal(call);
  assert.ok(error instanceof kind, String(error));
  assert.deepEqual([error.status, error.type, error.code, error.param], [status, type, code, param]);
  assert.ok(error.requestID);
}

await Promise.all(recording);
