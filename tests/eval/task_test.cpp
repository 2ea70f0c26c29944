// The prompts below are what lm-evaluation-harness 0.4.13 makes of the same lines: scripts/harness/check.py compares
// whole files with it.
#include "eval/task.h"

#include <gmock/gmock.h>

#include "eval/python_literal.h"
#include "eval/task_support.h"

namespace filigree {
namespace {

using ::testing::HasSubstr;
using testing::item_of;
using testing::task_of;
using testing::task_refusal;

TEST(Task, HellaSwagIsCleanedOfItsMarks) {
  const TaskItem item = item_of(
      "hellaswag",
      R"({"activity_label": "Home", "ctx_a": "How to sit [header] Sit [title] down.  Now", "ctx_b": "the MAN É",)"
      R"( "endings": [" [step] Get a chair.\u00a0", "B", "C", "D"], "label": "2"})");
  EXPECT_EQ(item.requests[0].context, "Home: How to sit Sit. down. Now The man \xC3\xA9");
  EXPECT_EQ(item.requests[0].continuation, "  Get a chair.");
  EXPECT_EQ(item.requests.size(), 4u);
  EXPECT_EQ(item.gold, 2);
  const EvalTask lines = task_of("hellaswag", "Sitting: A man\n1\na\nb\nc\nd\nLying: B\n0\ne\nf\ng\nh\n", ".txt");
  ASSERT_EQ(lines.items(), 2);
  EXPECT_EQ(lines.sets[0].items[0].requests[1].continuation, " b");
  EXPECT_EQ(lines.sets[0].items[1].requests[0].context, "Lying: B");
  EXPECT_TRUE(lines.normalized);
}

TEST(Task, QuestionsAreAskedAsTheHarnessDoes) {
  const TaskItem piqa = item_of("piqa", R"({"goal": "To sit", "sol1": "use a chair", "sol2": "fly", "label": 0})");
  EXPECT_EQ(piqa.requests[1].context, "Question: To sit\nAnswer:");
  EXPECT_EQ(piqa.requests[1].continuation, " fly");
  for (const char* line :
       {R"({"question": "Why?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "answerKey": "3"})",
        R"({"question": {"stem": "Why?", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"},)"
        R"( {"text": "c", "label": "C"}]}, "answerKey": "C"})",
        R"({"query": "Question: Why?\n", "choices": ["a", "b", "c"], "gold": 2})"}) {
    const TaskItem arc = item_of("arc_easy", line);
    EXPECT_EQ(arc.requests[2].context, "Question: Why?\nAnswer:");
    EXPECT_EQ(arc.requests[2].continuation, " c");
    EXPECT_EQ(arc.gold, 2);
  }
  const TaskItem book = item_of("openbookqa", R"({"question_stem": "Frogs eat", "choices": {"text": ["flies", "iron"],)"
                                              R"( "label": ["A", "B"]}, "answerKey": " B"})");
  EXPECT_EQ(book.requests[0].context, "Frogs eat");
  EXPECT_EQ(book.gold, 1);
  const TaskItem math =
      item_of("mathqa", R"({"Problem": "one and 5,000 ?", "options":)"
                        R"( "a ) rs . 5,001 , b ) 2 , c ) 3 , d ) data inadequate , e ) none , of these",)"
                        R"( "correct": "e"})");
  EXPECT_EQ(math.choices, (std::vector<std::string>{"rs . 5,001", "2", "3", "data inadequate", "none , of these"}));
  EXPECT_EQ(math.requests[4].continuation, " none , of these");
  EXPECT_EQ(math.gold, 4);
}

TEST(Task, LambadaAsksForTheLastWord) {
  const TaskItem item = item_of("lambada", R"({"text": "He asked for  signs"})");
  EXPECT_EQ(item.requests[0].context, "He asked for ");
  EXPECT_EQ(item.requests[0].continuation, " signs");
  const TaskItem parted = item_of("lambada", R"({"context": "He asked for", "continuation": "signs"})");
  EXPECT_EQ(parted.requests[0].continuation, " signs");
  EXPECT_EQ(task_of("lambada", R"({"text": "a b"})").kind, TaskKind::continuation);
}

TEST(Task, WinoGrandeScoresWhatFollowsTheBlank) {
  const TaskItem item = item_of(
      "winogrande", R"({"sentence": "Ann met Bea and _ smiled. ", "option1": "Ann", "option2": "Bea", "answer": "2"})");
  EXPECT_EQ(item.requests[0].context, "Ann met Bea and Ann");
  EXPECT_EQ(item.requests[0].continuation, " smiled.");
  EXPECT_EQ(item.requests[1].context, "Ann met Bea and Bea");
  EXPECT_EQ(item.gold, 1);
}

TEST(Task, RaceAsksTheLastQuestionBehindTheOthers) {
  const std::string expected = "Article: Once.\n\nQuestion: Who?\nAnswer: b's\nIt was a.\nWhen?";
  for (
      const char* line :
      {R"({"article": "Once.", "problems": "[{'question': 'Who?', 'answer': 'B', 'options': ['a', \"b's\", 'c', 'd']},)"
       R"( {'question': 'It was  _  .', 'answer': 'A', 'options': ['a.', 'b', 'c', 'd']},)"
       R"( {'question': 'When?', 'answer': 'D', 'options': ['1', '2', '3', '4\\n']}]"})",
       R"({"article": "Once.", "questions": ["Who?", "It was  _  .", "When?"], "answers": ["B", "A", "D"],)"
       R"( "options": [["a", "b's", "c", "d"], ["a.", "b", "c", "d"], ["1", "2", "3", "4\n"]]})"}) {
    const TaskItem item = item_of("race", line);
    EXPECT_EQ(item.requests[0].context, expected);
    EXPECT_EQ(item.requests[3].continuation, " 4\n");
    EXPECT_EQ(item.gold, 3);
  }
}

TEST(Task, MmluAndBlimpHaveParts) {
  const std::string line =
      R"({"question": " What? ", "subject": "high_school_physics", "choices": ["a", "b", "c", "d"],)"
      R"( "answer": 3})";
  const EvalTask task = task_of("mmlu", line + "\n" +
                                            R"({"question": "Q", "subject": "virology",)"
                                            R"( "choices": ["a", "b", "c", "d"], "answer": 0})"
                                            "\n" +
                                            line + "\n");
  ASSERT_EQ(task.sets.size(), 2u);
  EXPECT_EQ(task.sets[0].name, "mmlu_high_school_physics");
  EXPECT_EQ(task.sets[0].group, "mmlu_stem");
  EXPECT_EQ(task.sets[0].items.size(), 2u);
  EXPECT_EQ(task.sets[1].group, "mmlu_other");
  EXPECT_EQ(task.sets[0].items[0].requests[1].context,
            "The following are multiple choice questions (with answers) about high school physics.\n\nWhat?\nA. a\nB. "
            "b\nC. c\nD. d\nAnswer:");
  EXPECT_EQ(task.sets[0].items[0].requests[1].continuation, " B");
  EXPECT_TRUE(task.weighted);
  const EvalTask blimp = task_of("blimp", R"({"sentence_good": "A", "sentence_bad": "B", "linguistics_term": "x"})");
  EXPECT_EQ(blimp.sets[0].name, "blimp_blimp") << "a set is called as its file";
  EXPECT_EQ(blimp.sets[0].group, "blimp_x");
  EXPECT_EQ(blimp.sets[0].items[0].requests[0].context, "");
  EXPECT_EQ(blimp.sets[0].items[0].requests[0].continuation, " A");
  EXPECT_FALSE(blimp.weighted);
}

TEST(Task, OnesOwnQuestionsHaveThreeForms) {
  const EvalTask choices = task_of("mine", R"({"query": "Q:", "choices": ["x", "y"], "gold": 1})");
  EXPECT_TRUE(choices.normalized);
  EXPECT_EQ(choices.sets[0].items[0].requests[0].context, "Q:");
  EXPECT_EQ(choices.sets[0].items[0].requests[0].continuation, " x");
  const EvalTask partial = task_of("mine", R"({"context_options": ["x", "y"], "continuation": "z", "gold": 0})");
  EXPECT_FALSE(partial.normalized);
  EXPECT_EQ(partial.sets[0].items[0].requests[1].context, "y");
  EXPECT_EQ(partial.sets[0].items[0].requests[1].continuation, " z");
  EXPECT_EQ(task_of("mine", R"({"context": "x", "continuation": "z"})").kind, TaskKind::continuation);
}

TEST(Task, MistakesNameFileAndLine) {
  const std::string fine = R"({"goal": "To sit", "sol1": "a", "sol2": "b", "label": 0})"
                           "\n";
  EXPECT_THAT(task_refusal("piqa", fine + "\n{"), HasSubstr("piqa.jsonl line 3: this line is not valid JSON"));
  EXPECT_THAT(task_refusal("piqa", fine + "[1]"), HasSubstr("line 2: a JSON object is needed, this is array"));
  EXPECT_THAT(task_refusal("piqa", fine + "{}"), HasSubstr("line 2: it has no text under \"goal\"; PIQA's lines have"));
  EXPECT_THAT(task_refusal("piqa", R"({"goal": "To sit", "sol1": "a", "sol2": "b", "label": 2})"),
              HasSubstr("a number from 0 to 1 is needed under \"label\", this is 2"));
  EXPECT_THAT(task_refusal("piqa", R"({"goal": "To sit", "sol1": "a", "sol2": "b"})"), HasSubstr("under \"label\""));
  EXPECT_THAT(task_refusal("piqa", "\n"), HasSubstr("piqa.jsonl: this file has no lines"));
  EXPECT_THAT(task_refusal("piqa", R"({"context": "x", "continuation": "y"})"), HasSubstr("it has another form"));
  EXPECT_THAT(task_refusal("arc_easy", R"({"question": "Q", "choices": {"text": ["a"], "label": ["A"]},)"
                                       R"( "answerKey": "B"})"),
              HasSubstr("the answer \"B\" is none of the choices"));
  EXPECT_THAT(task_refusal("mmlu", R"({"question": "Q", "subject": "magic", "choices": ["a", "b", "c", "d"],)"
                                   R"( "answer": 0})"),
              HasSubstr("\"magic\" is none of MMLU's subjects"));
  EXPECT_THAT(task_refusal("race", R"({"article": "A", "problems": "[{'question': 1}]"})"), HasSubstr("problems"));
  EXPECT_THAT(task_refusal("winogrande", R"({"sentence": "S", "option1": "a", "option2": "b", "answer": "1"})"),
              HasSubstr("has no _"));
  EXPECT_THAT(task_refusal("hellaswag", "a\n0\nb\n", ".txt"), HasSubstr("an item has six lines"));
  EXPECT_THAT(task_refusal("hellaswag", "a\n4\nb\nc\nd\ne\n", ".txt"), HasSubstr("its second line is \"4\""));
  EXPECT_THAT(task_refusal("mine", R"({"query": "Q", "choices": ["a"], "gold": 0})"
                                   "\n"
                                   R"({"context": "x", "continuation": "y"})"),
              HasSubstr("mine.jsonl line 2: it has another form than those before it"));
}

TEST(Task, FindsItsDataAmongTheSources) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const char* name, const char* goal) {
    std::ofstream(folder.path() / name) << R"({"goal": ")" << goal << R"(", "sol1": "a", "sol2": "b", "label": 0})"
                                        << "\n";
    return (folder.path() / name).string();
  };
  std::filesystem::create_directories(folder.path() / "data" / "piqa");
  write("data/piqa/x.jsonl", "in a folder");
  const std::string own = write("other.jsonl", "named"), called = write("piqa.jsonl", "called so");
  const std::string data = (folder.path() / "data").string();
  const auto asked = [](const std::vector<std::string>& sources, bool only) {
    return load_task("piqa", sources, only).sets[0].items[0].requests[0].context;
  };
  EXPECT_THAT(asked({data, "piqa=" + own}, false), HasSubstr("named"));
  EXPECT_THAT(asked({own, data}, false), HasSubstr("in a folder"));
  EXPECT_THAT(asked({own, called}, false), HasSubstr("called so"));
  EXPECT_THAT(asked({own}, true), HasSubstr("named"));
  EXPECT_EQ(load_task("piqa", std::vector<std::string>{called}, true, 1).items(), 1);
  for (const auto& [name, part] : {std::pair{"piqa", "task piqa: no data for it; give piqa=FILE, or a folder"},
                                   std::pair{"pica", "task pica: no task that filigree knows"}}) {
    try {
      load_task(name, std::vector<std::string>{own}, false);
      FAIL() << "a file of another name serves no task";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  }
  EXPECT_THROW(load_tasks(std::vector<std::string>{"piqa", "piqa"}, std::vector<std::string>{called}), UserError);
}

TEST(PythonLiteral, IsReadAsPythonWritesIt) {
  const nlohmann::json read =
      parse_python_literal(R"([{'a': 'it\'s', "b": ["x\n", '\xe9\u20ac\U0001F600', 'c\q']}, ])");
  EXPECT_EQ(read, nlohmann::json::parse(R"([{"a": "it's", "b": ["x\n", "\u00e9\u20ac\ud83d\ude00", "c\\q"]}])"));
  EXPECT_EQ(parse_python_literal("[]").dump(), "[]");
  for (const char* wrong : {"", "[", "['a'", "['a]", "{'a'}", "{'a': }", "[1]", "['a'] x", "['\\x4']", "['\\ud800']"})
    EXPECT_TRUE(parse_python_literal(wrong).is_discarded()) << wrong;
  EXPECT_TRUE(parse_python_literal(std::string(100000, '[')).is_discarded());
}

}  // namespace
}  // namespace filigree
