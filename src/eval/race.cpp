// RACE (Lai et al., arXiv 1704.04683): an article with several questions. As the harness has it, the last question is
// asked, and those before it stand with their answers between the article and it.
#include "eval/python_literal.h"
#include "eval/task_formats.h"

namespace filigree {
namespace {

struct Problem {
  std::string question, answer;
  std::vector<std::string> options;
};

Problem problem_of(const TaskLine& line) {
  return {line.text("question"), line.text("answer"), line.texts("options")};
}

std::vector<Problem> problems_of(const TaskLine& line) {
  std::vector<Problem> problems;
  if (line.has("problems")) {
    nlohmann::json list = line.object().at("problems");
    if (list.is_string()) list = parse_python_literal(list.get<std::string>());
    if (!list.is_array()) line.fail("its problems are no list");
    for (const auto& each : list) {
      if (!each.is_object()) line.fail("a problem has not the form that is needed");
      problems.push_back(problem_of(line.inside(each)));
    }
    return problems;
  }
  if (line.has("question")) return {problem_of(line)};
  const std::vector<std::string> questions = line.texts("questions"), answers = line.texts("answers");
  const auto options = line.object().find("options");
  if (options == line.object().end() || !options->is_array() || options->size() != questions.size() ||
      answers.size() != questions.size())
    line.fail("it has not as many options and answers as questions");
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const nlohmann::json each = {{"options", options->at(i)}};
    problems.push_back({questions[i], answers[i], line.inside(each).texts("options")});
  }
  return problems;
}

}  // namespace

TaskItem race_item(const TaskLine& line) {
  const std::vector<Problem> problems = problems_of(line);
  if (problems.empty()) line.fail("it has no problem");
  std::string context = "Article: " + line.text("article") + "\n\n";
  std::int64_t gold = 0;
  for (const Problem& problem : problems) {
    if (problem.options.size() != 4) line.fail("a problem has not four options");
    gold = line.place_of(problem.answer, {"A", "B", "C", "D"});
    if (&problem == &problems.back()) break;
    const std::string& answer = problem.options[static_cast<std::size_t>(gold)];
    constexpr std::string_view kBlankAtEnd = "  _  .";
    if (problem.question.ends_with(kBlankAtEnd))
      context += problem.question.substr(0, problem.question.size() - kBlankAtEnd.size() + 1) + answer + "\n";
    else
      context += "Question: " + problem.question + "\nAnswer: " + answer + "\n";
  }
  context += problems.back().question;
  TaskItem item{.requests = {}, .gold = gold, .choices = problems.back().options};
  for (const std::string& option : item.choices) item.requests.push_back({context, " " + option});
  return item;
}

}  // namespace filigree
