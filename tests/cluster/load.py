"""Clients that stream completions until standard input closes, and hold each text to the one that an undisturbed
cluster gave. Prints a line of JSON: requests that were right, those that failed, and how many for each reason; and how
often a connection was refused, of which nobody has seen a request; how often one was taken and no answer began, as by
the kernel for a process that is ending; and the longest time in which a request that was
right heard nothing. FILE keeps the texts for further runs.
  load.py URL CLIENTS [FILE]"""
import http.client
import json
import pathlib
import sys
import threading
import time
import urllib.parse

class Unanswered(Exception):
    pass


PROMPTS = [f"Count from {n} to {n + 4}:" for n in range(1, 33)]


def complete(url, prompt):
    """The text of a streamed completion, and the longest time without a word of it; raises where it does not come to
    its end."""
    heard = time.monotonic()
    connection = http.client.HTTPConnection(url.hostname, url.port or 80, timeout=60)
    try:
        connection.connect()
        try:
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": prompt, "max_tokens": 128, "temperature": 0, "ignore_eos": True, "stream": True}),
                {"Content-Type": "application/json"})
            response = connection.getresponse()
        except ConnectionError as error:  # http.client.RemoteDisconnected is one
            raise Unanswered(type(error).__name__) from None
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read(300)}")
        text, pause = "", 0
        for line in response:
            now = time.monotonic()
            pause, heard = max(pause, now - heard), now
            if line.startswith(b"data: [DONE]"):
                return text, pause
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(f"in the stream: {event['error']}")
                text += "".join(choice["text"] for choice in event["choices"])
        raise RuntimeError("the stream ends without [DONE]")
    finally:
        connection.close()


def main():
    url, n_clients = urllib.parse.urlsplit(sys.argv[1]), int(sys.argv[2])
    file = pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None
    expected = json.loads(file.read_text()) if file and file.exists() else {
        prompt: complete(url, prompt)[0] for prompt in PROMPTS}
    if file:
        file.write_text(json.dumps(expected))
    print("begun", flush=True)
    over, lock = threading.Event(), threading.Lock()
    result = {"right": 0, "failed": 0, "wrong": 0, "refused": 0, "unanswered": 0, "pause": 0, "why": {}}

    def client(first):
        n = first
        while not over.is_set():
            prompt = PROMPTS[n % len(PROMPTS)]
            n += 1
            pause = 0
            try:
                text, pause = complete(url, prompt)
                kind, why = ("right", "") if text == expected[prompt] else ("wrong", f"{prompt} {text!r}")
            except ConnectionRefusedError:
                kind, why = "refused", ""
                time.sleep(0.1)
            except Unanswered as error:
                kind, why = "unanswered", f"no answer: {error}"
            except (OSError, http.client.HTTPException, RuntimeError, ValueError) as error:
                kind, why = "failed", f"{type(error).__name__}: {error}"
            with lock:
                result[kind] += 1
                result["pause"] = max(result["pause"], pause)
                if why and (why in result["why"] or len(result["why"]) < 20):
                    result["why"][why] = result["why"].get(why, 0) + 1

    threads = [threading.Thread(target=client, args=(7 * i,)) for i in range(n_clients)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(result))


main()
