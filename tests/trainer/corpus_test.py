"""What the demo model learns from is right, and its evaluation asks for nothing that training has."""

import json
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools/trainer"))
import conversations
import questions
import sums
from chat_template import render
from conversations import SHARES, example
from draw import Draw, is_held
from story_check import story_is_right

DRAWS = 2000


def count_tokens(text):
    return max(1, len(text) // 4)


def drawn_sums(evaluation):
    draw = Draw("sums", evaluation)
    for _ in range(DRAWS):
        digits = draw.pick(list(sums.DIGITS)) if evaluation else None
        yield sums.question(draw, digits=digits)


class CorpusTest(unittest.TestCase):
    def test_results_of_sums_are_right(self):
        for _, answer in drawn_sums(False):
            a, op, b, result = re.fullmatch(r"(\d+) ([+-]) (\d+) = (\d+)\.", answer).groups()
            self.assertEqual(int(a) + int(b) if op == "+" else int(a) - int(b), int(result), answer)

    def test_a_question_has_the_operands_of_its_answer(self):
        for ask, answer in drawn_sums(False):
            self.assertEqual(sorted(re.findall(r"\d+", ask)), sorted(re.findall(r"\d+", answer)[:2]))

    def test_training_has_sums_of_every_number_of_digits(self):
        seen = {tuple(map(len, re.findall(r"\d+", answer)[:2])) for _, answer in drawn_sums(False)}
        self.assertEqual(seen, set(sums.DIGITS))

    def test_only_pairs_of_one_digit_are_on_both_sides_of_the_split(self):
        def pairs(evaluation):
            return {tuple(answer.split()[:3]) for _, answer in drawn_sums(evaluation)}

        for a, op, b in pairs(False) & pairs(True):
            self.assertEqual((len(a), len(b)), (1, 1), f"{a} {op} {b}")

    def test_questions_that_are_split_belong_to_their_side(self):
        for evaluation in (False, True):
            draw = Draw("questions", evaluation)
            for kind in set(questions.QUESTIONS) - {"chat"}:
                for _ in range(50):
                    self.assertEqual(is_held(conversations.question_of(draw, kind)[0]), evaluation, kind)

    def test_a_seed_repeats_its_conversations(self):
        def drawn():
            draw = Draw("again")
            return [example(draw, kind, 200, count_tokens) for kind in SHARES if kind != "sheet" for _ in range(20)]

        self.assertEqual(drawn(), drawn())

    def test_the_answer_about_a_text_is_in_it_and_its_key_is_there_once(self):
        draw = Draw("texts")
        for _ in range(100):
            messages = conversations.retrieval(draw, 300, count_tokens, 3)
            text = messages[0]["content"]
            for message in messages:
                if message["role"] != "assistant":
                    continue
                self.assertIn(message["content"], text)
                for statement, _ in conversations.FACTS:
                    pattern = re.sub(r"\\\{[NCPA]\\\}", r"([\\w]+)", re.escape(statement))
                    pattern = re.sub(r"\\\{\w+\\\}", r"[\\w:]+", pattern).replace(r"a\ ", r"an?\ ")
                    found = re.fullmatch(pattern, message["content"])
                    if not found:
                        continue
                    keyed = pattern.replace(r"([\w]+)", re.escape(found.group(1)))
                    self.assertEqual(len(re.findall(r"(?:^|[.\s])" + keyed, text)), 1, message["content"])

    def test_json_has_the_fields_that_are_asked_for_in_their_order(self):
        draw = Draw("json")
        for _ in range(200):
            ask, answer = questions.json_object(draw)
            fields = re.search(r"fields (.*?): ", ask).group(1).replace(" and ", ", ").split(", ")
            self.assertEqual(list(json.loads(answer)), fields)

    def test_calls_name_an_offered_tool_and_have_its_arguments(self):
        draw, calls = Draw("tools"), 0
        for _ in range(200):
            messages, tools = conversations.with_tools(draw)
            offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
            for message in messages:
                for call in message.get("tool_calls", []):
                    arguments, calls = call["function"]["arguments"], calls + 1
                    schema = offered[call["function"]["name"]]
                    self.assertEqual(list(arguments), schema["required"])
                    for name, value in arguments.items():
                        self.assertIsInstance(
                            value, {"string": str, "integer": int}[schema["properties"][name]["type"]]
                        )
        self.assertGreater(calls, 100)

    def test_the_pieces_of_a_rendered_conversation_are_learned_where_the_assistant_wrote_them(self):
        draw = Draw("pieces")
        for kind in SHARES:
            if kind == "sheet":
                continue
            messages, tools = example(draw, kind, 200, count_tokens)
            pieces = render(messages, tools)
            own = [text for text, is_own in pieces if is_own]
            said = [m for m in messages if m["role"] == "assistant"]
            self.assertEqual(len(own), len(said))
            for text, message in zip(own, said):
                self.assertTrue(text.startswith(message["content"]) and text.endswith("<|im_end|>"))
            for text, is_own in pieces:
                if not is_own:
                    self.assertTrue(text.endswith("<|im_start|>assistant\n"))

    def test_stories_follow_their_grammar_and_changed_ones_do_not(self):
        draw = Draw("stories", evaluation=True)
        for _ in range(100):
            ask, story = questions.story(draw)
            self.assertTrue(story_is_right(ask, story), story)
            name = re.search(r"named (\w+)", story).group(1)
            at = story.rindex(name)
            self.assertFalse(story_is_right(ask, story[:at] + "Somebody" + story[at + len(name) :]), story)
            self.assertFalse(story_is_right(ask, story[: len(story) // 2]))


if __name__ == "__main__":
    unittest.main()
