#include "model/survey.h"

#include <unordered_set>

#include "base/error.h"
#include "model/model.h"

namespace moetier {
namespace {

struct Survey {
  size_t most;
  LoadProblems found = {};
  std::unordered_set<std::string> known = {};
  bool shapes_unknown = false;

  void note(const std::string& sentence) {
    if (!known.insert(sentence).second) return;
    if (found.sentences.size() < most)
      found.sentences.push_back(sentence);
    else
      ++found.more;
  }
};

// Every family has a loader of its own: a parameter for this would be handed through all of them.
thread_local Survey* current = nullptr;

class Running {
 public:
  explicit Running(Survey& survey) { current = &survey; }
  ~Running() { current = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

}  // namespace

LoadProblems find_load_problems(const GgufFile& file, Compute& compute, size_t most) {
  Survey survey{most};
  const Running running(survey);
  try {
    static_cast<void>(load_model(file, compute));
  } catch (const Error& error) {
    // What comes after a stand-in for a count may be its fault.
    if (!survey.shapes_unknown) survey.note(error.what());
  }
  return std::move(survey.found);
}

void fail_or_note(const std::string& sentence, bool shapes) {
  if (current == nullptr) fail("{}", sentence);
  current->note(sentence);
  current->shapes_unknown = current->shapes_unknown || shapes;
}

void end_survey_of_keys() {
  if (current != nullptr && current->shapes_unknown) fail("the shapes of tensors are not known");
}

bool note_ignored(std::string_view tensor) {
  if (current == nullptr) return false;
  LoadProblems& found = current->found;
  if (found.ignored.size() < current->most)
    found.ignored.emplace_back(tensor);
  else
    ++found.more_ignored;
  return true;
}

}  // namespace moetier
