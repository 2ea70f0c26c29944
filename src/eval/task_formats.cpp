#include "eval/task_formats.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "eval/mmlu_subjects.h"
#include "eval/task_text.h"

namespace filigree {
namespace {

std::string after_space(const std::string& text) {
  return std::string(" ").append(text);
}

TaskItem choose(const std::string& context, std::vector<std::string> choices, std::int64_t gold) {
  TaskItem item;
  for (const std::string& choice : choices) item.requests.push_back({context, after_space(choice)});
  item.gold = gold;
  item.choices = std::move(choices);
  return item;
}

std::string asked(const std::string& question) {
  return "Question: " + question + "\nAnswer:";
}

// The question of a query that has "Question: " before it already.
std::string question_of(const std::string& query) {
  constexpr std::string_view kBefore = "Question: ";
  const std::string text = strip_right(query);
  return text.starts_with(kBefore) ? text.substr(kBefore.size()) : text;
}

// "choices": {"text": [...], "label": [...]}, or [{"text": ..., "label": ...}, ...].
std::pair<std::vector<std::string>, std::vector<std::string>> labelled_choices(const TaskLine& line) {
  std::pair<std::vector<std::string>, std::vector<std::string>> result;
  const auto found = line.object().find("choices");
  if (found != line.object().end() && found->is_array()) {
    for (const auto& each : *found) {
      const bool whole = each.is_object() && each.contains("text") && each.contains("label") &&
                         each.at("text").is_string() && each.at("label").is_string();
      if (!whole) line.fail("a choice has no text and label");
      result.first.push_back(each.at("text"));
      result.second.push_back(each.at("label"));
    }
    if (result.first.empty()) line.fail("it has no choices");
    return result;
  }
  const TaskLine choices = line.inner("choices");
  result = {choices.texts("text"), choices.texts("label")};
  if (result.first.size() != result.second.size()) line.fail("it has not as many labels as choices");
  return result;
}

TaskItem blimp(const TaskLine& line) {
  return choose("", {line.text("sentence_good"), line.text("sentence_bad")}, 0);
}
void place_blimp(const TaskLine& line, const std::string& file, TaskSet& set) {
  set.name = "blimp_" + file;
  set.group = "blimp_" + line.text("linguistics_term");
}

TaskItem last_word(const TaskLine& line) {
  const std::string text = line.text("text");
  const std::size_t space = text.rfind(' ');
  if (space == std::string::npos) line.fail("the text has one word only");
  return {.requests = {{text.substr(0, space), text.substr(space)}}};
}

std::string cleaned(const std::string& text) {
  return replace_all(without_brackets(replace_all(strip(text), " [title]", ". ")), "  ", " ");
}

TaskItem hellaswag(const TaskLine& line) {
  std::vector<std::string> endings;
  for (const std::string& ending : line.texts("endings")) endings.push_back(cleaned(ending));
  const std::string context =
      line.text("activity_label") + ": " + line.text("ctx_a") + " " + capitalize(line.text("ctx_b"));
  const std::int64_t gold = line.index("label", endings.size());
  return choose(cleaned(context), std::move(endings), gold);
}

TaskItem piqa(const TaskLine& line) {
  const std::string question = asked(line.text("goal"));
  std::vector<std::string> choices;
  for (const char* key : {"sol1", "sol2"}) choices.push_back(line.text(key));
  return choose(question, std::move(choices), line.index("label", 2));
}

// As published by AI2, the question inside an object with stem and choices; or in Hugging Face's form.
std::string stem_of(const TaskLine& line, const char* key) {
  return line.object().contains("question") && line.object().at("question").is_object()
             ? line.inner("question").text("stem")
             : line.text(key);
}
TaskItem labelled(const TaskLine& line, const std::string& context, const std::string& answer) {
  const bool inside = line.has("question") && line.object().at("question").is_object();
  auto [choices, labels] = labelled_choices(inside ? line.inner("question") : line);
  const std::int64_t gold = line.place_of(answer, labels);
  return choose(context, std::move(choices), gold);
}
TaskItem arc(const TaskLine& line) {
  return labelled(line, asked(stem_of(line, "question")), line.text("answerKey"));
}
TaskItem open_book(const TaskLine& line) {
  return labelled(line, stem_of(line, "question_stem"), strip(line.text("answerKey")));
}

TaskItem mmlu(const TaskLine& line) {
  const std::vector<std::string> choices = line.texts("choices");
  if (choices.size() != 4) line.fail("four choices are needed, it has " + std::to_string(choices.size()));
  std::string subject = replace_all(line.text("subject"), "_", " ");
  std::string context = "The following are multiple choice questions (with answers) about " + subject + ".\n\n" +
                        strip(line.text("question"));
  for (std::size_t i = 0; i < choices.size(); ++i)
    context.append("\n").append(1, static_cast<char>('A' + i)).append(". ").append(choices[i]);
  return choose(context + "\nAnswer:", {"A", "B", "C", "D"}, line.index("answer", 4));
}
void place_mmlu(const TaskLine& line, const std::string&, TaskSet& set) {
  const std::string subject = line.text("subject");
  set.name = "mmlu_" + subject;
  const std::string_view group = mmlu_group(subject);
  if (group.empty()) line.fail("\"" + subject + "\" is none of MMLU's subjects");
  set.group = "mmlu_" + std::string(group);
}

// "a ) 38 , b ) 27.675 , ... , e ) none of these": a choice ends at the next comma and space, the last one at the end.
std::vector<std::string> math_choices(const std::string& options) {
  std::vector<std::string> choices;
  for (std::size_t at = 0; at + 4 <= options.size();) {
    const bool marked = options.compare(at + 1, 3, " ) ") == 0;
    const char letter = options[at];
    std::size_t end = std::string::npos;
    if (marked && letter >= 'a' && letter <= 'd') {
      end = options.find(", ", at + 4);
      if (end != std::string::npos) end += 2;
    } else if (marked && letter == 'e') {
      end = options.size();
    }
    if (end == std::string::npos) {
      ++at;
      continue;
    }
    std::string choice = options.substr(at + 4, end - at - 4);
    while (!choice.empty() && (choice.back() == ' ' || choice.back() == ',')) choice.pop_back();
    choices.push_back(std::move(choice));
    at = end;
  }
  return choices;
}
TaskItem math(const TaskLine& line) {
  std::vector<std::string> choices = math_choices(line.text("options"));
  if (choices.empty()) line.fail("no choices were found in its options");
  const std::int64_t gold = line.place_of(line.text("correct"), {"a", "b", "c", "d", "e"});
  if (gold >= static_cast<std::int64_t>(choices.size()))
    line.fail("its options have no choice " + line.text("correct"));
  return choose(asked(line.text("Problem")), std::move(choices), gold);
}

// Trinh and Le's partial scoring (arXiv 1806.02847): the probability of what follows, given each filling.
TaskItem winogrande(const TaskLine& line) {
  const std::string sentence = line.text("sentence");
  const std::size_t blank = sentence.find('_');
  if (blank == std::string::npos) line.fail("its sentence has no _");
  TaskItem item;
  for (const char* option : {"option1", "option2"})
    item.requests.push_back(
        {sentence.substr(0, blank) + line.text(option), after_space(strip(sentence.substr(blank + 1)))});
  item.gold = line.place_of(line.text("answer"), {"1", "2"});
  return item;
}

template <const char* kKey>
bool has(const TaskLine& line) {
  return line.has(kKey);
}
constexpr char kText[] = "text", kEndings[] = "endings", kGoal[] = "goal", kAnswerKey[] = "answerKey",
               kProblem[] = "Problem", kSentence[] = "sentence", kArticle[] = "article", kSubject[] = "subject",
               kGood[] = "sentence_good";

constexpr std::array kFormats = {
    TaskFormat{"blimp", TaskKind::choices, false, false, "2.0",
               "BLiMP's lines have the texts sentence_good, sentence_bad and linguistics_term", has<kGood>, blimp,
               place_blimp},
    TaskFormat{"lambada", TaskKind::continuation, false, false, "1.0",
               "LAMBADA's lines have a text, or a context and its continuation", has<kText>, last_word},
    TaskFormat{"hellaswag", TaskKind::choices, true, false, "1.0",
               "HellaSwag's lines have activity_label, ctx_a, ctx_b, endings and label", has<kEndings>, hellaswag},
    TaskFormat{"piqa", TaskKind::choices, true, false, "1.0", "PIQA's lines have goal, sol1, sol2 and label",
               has<kGoal>, piqa},
    TaskFormat{"arc_easy", TaskKind::choices, true, false, "1.0",
               "ARC's lines have question, choices (text and label) and answerKey", has<kAnswerKey>, arc},
    TaskFormat{"arc_challenge", TaskKind::choices, true, false, "1.0",
               "ARC's lines have question, choices (text and label) and answerKey", has<kAnswerKey>, arc},
    TaskFormat{"openbookqa", TaskKind::choices, true, false, "1.0",
               "OpenBookQA's lines have question_stem, choices (text and label) and answerKey", has<kAnswerKey>,
               open_book},
    TaskFormat{"race", TaskKind::choices, false, false, "3.0",
               "RACE's lines have an article and problems; or article, questions, options and answers", has<kArticle>,
               race_item},
    TaskFormat{"mmlu", TaskKind::choices, false, true, "2",
               "MMLU's lines have question, subject, choices (four texts) and answer (0 to 3)", has<kSubject>, mmlu,
               place_mmlu},
    TaskFormat{"mathqa", TaskKind::choices, true, false, "1.0", "MathQA's lines have Problem, options and correct",
               has<kProblem>, math},
    TaskFormat{"winogrande", TaskKind::choices, false, false, "1.0",
               "WinoGrande's lines have sentence (with a _), option1, option2 and answer", has<kSentence>, winogrande},
};

}  // namespace

std::span<const TaskFormat> task_formats() {
  return kFormats;
}

const TaskFormat* find_task_format(std::string_view name) {
  for (const TaskFormat& format : kFormats)
    if (format.name == name) return &format;
  return nullptr;
}

TaskItem read_own_line(const TaskLine& line, TaskKind& kind, bool& normalized) {
  kind = TaskKind::choices;
  normalized = false;
  if (line.has("query")) {
    normalized = true;
    std::vector<std::string> choices = line.texts("choices");
    const std::int64_t gold = line.index("gold", choices.size());
    return choose(line.text("query"), std::move(choices), gold);
  }
  const std::string continuation = after_space(line.text("continuation"));
  if (line.has("context_options")) {
    TaskItem item;
    for (const std::string& context : line.texts("context_options")) item.requests.push_back({context, continuation});
    item.gold = line.index("gold", item.requests.size());
    return item;
  }
  kind = TaskKind::continuation;
  return {.requests = {{line.text("context"), continuation}}};
}

TaskItem read_converted_line(const TaskFormat& format, const TaskLine& line) {
  TaskKind kind = format.kind;
  bool normalized = false;
  TaskItem item = read_own_line(line, kind, normalized);
  if (kind != format.kind || (format.normalized && !normalized)) line.fail("it has another form");
  const bool asks = format.read == arc || format.read == piqa || format.read == math;
  if (asks)
    for (TaskRequest& request : item.requests) request.context = asked(question_of(request.context));
  return item;
}

std::vector<TaskItem> read_six_lines(const std::string& text, const std::string& file) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  constexpr std::size_t kLines = 6;
  std::vector<TaskItem> items;
  for (std::size_t first = 0; first < lines.size(); first += kLines) {
    const std::string where = file + " line " + std::to_string(first + 1);
    require_user(first + kLines <= lines.size(), where +
                                                     ": an item has six lines: its context, the right ending's "
                                                     "place from 0, and four endings");
    const std::string& gold = lines[first + 1];
    require_user(gold.size() == 1 && gold[0] >= '0' && gold[0] <= '3',
                 where + ": its second line is \"" + gold + "\"; the right ending's place, 0 to 3, is needed");
    items.push_back(choose(lines[first],
                           {lines.begin() + static_cast<std::ptrdiff_t>(first + 2),
                            lines.begin() + static_cast<std::ptrdiff_t>(first + kLines)},
                           gold[0] - '0'));
  }
  return items;
}

}  // namespace filigree
