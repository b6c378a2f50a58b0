#include "server/api/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "server/http/http_server.h"
#include "server/stream_writer.h"

namespace moetier::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{200};  // how often a silent client is looked at

std::vector<ChatPiece> without_markup(std::vector<ChatPiece> pieces) {
  std::erase_if(pieces, [](const ChatPiece& piece) { return piece.kind == ChatPiece::Kind::markup; });
  return pieces;
}

}  // namespace

Answers::Answers(Scheduler& scheduler, std::vector<Request> requests) : arrival_(std::make_shared<Bell>()) {
  for (Request& request : requests) {
    Choice choice;
    choice.unscored = request.prompt_probs >= 0;
    choice.stream = scheduler.submit(std::move(request));
    choice.stream->ring_also(arrival_);
    choices_.push_back(std::move(choice));
  }
  open_ = choices_.size();
}

void Answers::parse(const PreparedChat& chat) {
  for (Choice& choice : choices_) choice.parser.emplace(chat.format, chat.output);
}

void Answers::cancel(bool stalled) {
  for (Choice& choice : choices_) choice.stream->cancel(stalled);
}

std::optional<AnswerPart> Answers::ask(size_t index, milliseconds timeout) {
  Choice& choice = choices_[index];
  std::optional<StreamEvent> event = choice.stream->next(timeout);
  if (!event) return std::nullopt;
  if (event->kind == StreamEvent::Kind::error) {
    throw ApiError(event->error == ErrorKind::usage ? 400 : 500, event->message);
  }
  AnswerPart part;
  part.choice = index;
  part.tokens = std::move(event->tokens);
  part.progress = event->kind == StreamEvent::Kind::progress;
  part.prompt = event->kind == StreamEvent::Kind::prompt;
  if (part.prompt) choice.unscored = false;
  part.prompt_done = event->prompt_done;
  part.prompt_tokens = event->prompt_tokens;
  part.prompt_cached = event->prompt_cached;
  if (event->result != nullptr && event->result->finish == Finish::stalled) {
    throw ApiError(408, "the answer was cut off: its reader took too long to read it (--timeout)");
  }
  part.prompt_seconds = event->prompt_seconds;
  part.usage = event->usage;
  part.slot = event->slot;
  if (choice.parser) {
    if (!event->text.empty()) part.pieces = without_markup(choice.parser->push(event->text));
  } else {
    part.text = std::move(event->text);
  }
  if (event->kind == StreamEvent::Kind::done) {
    if (event->result->finish == Finish::shutdown) throw ApiError(503, "the server was stopped");
    if (choice.unscored) throw ApiError(503, "the prompt's log-probabilities were not computed in the time there is");
    if (choice.parser) {
      const bool cut = event->result->finish != Finish::end_of_generation;
      for (ChatPiece& piece : without_markup(choice.parser->finish(cut))) part.pieces.push_back(std::move(piece));
    }
    part.result = std::move(event->result);
    choice.ended = true;
    --open_;
  }
  return part;
}

std::optional<AnswerPart> Answers::next(milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    // Also where tokens come so fast that nobody ever waits: an answer that is sent whole writes nothing meanwhile.
    if (Connection* const client = current_connection(); client != nullptr && client->peer_gone()) throw ClientGone();
    for (size_t i = 0; i < choices_.size(); ++i) {
      const size_t index = turn_++ % choices_.size();
      if (choices_[index].ended) continue;
      if (auto part = ask(index, milliseconds(0))) return part;
    }
    const auto now = std::chrono::steady_clock::now();
    if (open_ == 0 || now >= until) return std::nullopt;
    arrival_->wait(std::min(until, now + kLook));
  }
}

void Answer::add(const AnswerPart& part) {
  if (part.prompt) {
    prompt = part.tokens;
    return;
  }
  text += part.text;
  for (const ChatPiece& piece : part.pieces) {
    switch (piece.kind) {
      case ChatPiece::Kind::reasoning:
        reasoning += piece.raw;
        break;
      case ChatPiece::Kind::tool_call:
      case ChatPiece::Kind::call_end:
        calls.push_back(piece.call);
        break;
      case ChatPiece::Kind::call_cut:
        cut_call = piece.call;
        break;
      case ChatPiece::Kind::content:
        content += piece.raw;
        break;
      case ChatPiece::Kind::call_begin:
      case ChatPiece::Kind::call_arguments:
      case ChatPiece::Kind::markup:
        break;
    }
  }
  tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  if (part.result != nullptr) result = part.result;
}

std::vector<Answer> gather(Answers& answers, const std::function<void(const AnswerPart&)>& each) {
  std::vector<Answer> out(answers.count());
  while (!answers.ended()) {
    const auto part = answers.next(std::chrono::seconds(1));
    if (!part) continue;
    if (each) each(*part);
    out[part->choice].add(*part);
  }
  return out;
}

Usage usage_of(const std::vector<Answer>& answers, size_t choices_each) {
  Usage usage;
  for (size_t i = 0; i < answers.size(); ++i) {
    const RequestResult& result = *answers[i].result;
    usage.completion += result.sampled_tokens;
    usage.reasoning += result.thought_tokens;
    if (i % choices_each != 0) continue;
    usage.prompt += result.prompt_tokens;
    usage.cached += result.cached_tokens;
  }
  return usage;
}

Json prompt_progress(const AnswerPart& part) {
  return {{"total", part.prompt_tokens},
          {"cache", part.prompt_cached},
          {"processed", part.prompt_done},
          {"time_ms", std::llround(part.prompt_seconds * 1000)}};
}

Json timings(const RequestUsage& r) {
  const int64_t computed = r.prompt_tokens - r.cached_tokens;
  const int64_t steps = std::max<int64_t>(r.sampled_tokens - 1, 0);
  const auto each = [](double seconds, int64_t n) { return n > 0 ? seconds * 1000 / static_cast<double>(n) : 0.0; };
  return {{"cache_n", r.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", r.prompt_seconds * 1000},
          {"prompt_per_token_ms", each(r.prompt_seconds, computed)},
          {"prompt_per_second", r.prompt_tok_s()},
          {"predicted_n", r.sampled_tokens},
          {"predicted_ms", r.decode_seconds * 1000},
          {"predicted_per_token_ms", each(r.decode_seconds, steps)},
          {"predicted_per_second", r.decode_tok_s()}};
}

std::string make_id(std::string_view prefix) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{}{:016x}{:08x}", prefix, random(), static_cast<uint32_t>(random()));
}

}  // namespace moetier::server
