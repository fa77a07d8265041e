#include "tests/sim/sim_net.h"

#include <utility>

namespace whet::testing {
namespace {

constexpr int64_t kPingTime = 15 * kSecond;  // 10 s until it asks, 5 s for the answer

}  // namespace

int64_t SimNet::Delay() {
  if (slow_ > 0 && rng_.Uniform() < slow_) return rng_.Below(4 * kSecond);
  return kMillisecond / 5 + rng_.Below(10 * kMillisecond);
}

SimNet::LinkId SimNet::AddLink() {
  links_.emplace_back();
  return links_.size() - 1;
}

SimNet::Stream* SimNet::Find(StreamId id) {
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : &it->second;
}

bool SimNet::open(StreamId id, StreamEnd end) const {
  const auto it = streams_.find(id);
  return it != streams_.end() && it->second.open[Index(end)];
}

SimNet::StreamId SimNet::Open(LinkId link, KeepAlive keep_alive, Lost client_lost,
                              Lost server_lost) {
  const StreamId id = next_++;
  Stream& s = streams_[id];
  s.link = link;
  s.keep_alive = keep_alive;
  s.lost[0] = std::move(client_lost);
  s.lost[1] = std::move(server_lost);
  return id;
}

void SimNet::Send(StreamId id, StreamEnd from, std::function<void()> deliver) {
  Stream* s = Find(id);
  if (s && s->open[Index(from)]) Post(id, s, Index(from), std::move(deliver));
}

void SimNet::Post(StreamId id, Stream* s, size_t from, std::function<void()> what) {
  const uint64_t index = s->sent[from]++;
  s->last[from] = std::max(s->last[from], loop_.now() + Delay());
  loop_.At(s->last[from], [this, id, from, index, what = std::move(what)]() mutable {
    Arrive(id, from, index, std::move(what));
  });
}

void SimNet::Arrive(StreamId id, size_t from, uint64_t index, std::function<void()> what) {
  Stream* s = Find(id);
  if (!s) return;
  if (IsCut(*s, from) || !s->held[from].empty()) {
    s->held[from].emplace_back(index, std::move(what));
    return;
  }
  Hand(id, s, from, index, what);
}

void SimNet::Hand(StreamId, Stream* s, size_t from, uint64_t index,
                  const std::function<void()>& what) {
  if (index >= s->limit[from] || !s->open[1 - from]) return;
  s->delivered[from] = index + 1;
  what();
}

void SimNet::Lose(StreamId id, StreamEnd end) {
  Stream* s = Find(id);
  if (!s || !s->open[Index(end)]) return;
  s->open[Index(end)] = false;
  const Lost lost = std::move(s->lost[Index(end)]);
  if (!s->open[1 - Index(end)]) streams_.erase(id);
  if (lost) lost(id);
}

void SimNet::LoseLater(StreamId id, StreamEnd end, int64_t delay) {
  Stream* s = Find(id);
  if (!s) return;
  // After what still arrives there.
  const int64_t at = std::max(s->last[1 - Index(end)], loop_.now() + delay);
  loop_.At(at, [this, id, end] { Lose(id, end); });
}

void SimNet::Close(StreamId id, StreamEnd by) {
  Stream* s = Find(id);
  if (!s || !s->open[Index(by)]) return;
  s->open[Index(by)] = false;
  s->lost[Index(by)] = nullptr;
  const StreamEnd other = OtherEnd(by);
  if (!s->open[Index(other)]) {
    streams_.erase(id);
    return;
  }
  Post(id, s, Index(by), [this, id, other] { Lose(id, other); });
}

void SimNet::Break(StreamId id, Learn who) {
  Stream* s = Find(id);
  if (!s) return;
  for (size_t from = 0; from < 2; ++from) {
    const auto under_way = static_cast<int64_t>(s->sent[from] - s->delivered[from]);
    const uint64_t limit = s->delivered[from] + static_cast<uint64_t>(rng_.Below(under_way + 1));
    s->limit[from] = std::min(s->limit[from], limit);
  }
  for (const StreamEnd end : {StreamEnd::kClient, StreamEnd::kServer}) {
    const bool learns =
        who == Learn::kBoth || (who == Learn::kClientOnly) == (end == StreamEnd::kClient);
    if (learns) {
      LoseLater(id, end, Delay());
    } else if (rng_.Below(2) == 0 || s->keep_alive == KeepAlive::kWorks) {
      LoseLater(id, end, kPingTime + rng_.Below(5 * kSecond));
    }
  }
}

void SimNet::Die(StreamId id, StreamEnd end, Death death) {
  Stream* s = Find(id);
  if (!s || !s->open[Index(end)]) return;
  Break(id, death == Death::kKilled     ? Learn::kBoth
            : end == StreamEnd::kClient ? Learn::kClientOnly
                                        : Learn::kServerOnly);
  s->open[Index(end)] = false;
  s->lost[Index(end)] = nullptr;
  if (!s->open[1 - Index(end)]) streams_.erase(id);
}

// ---- links

void SimNet::Cut(LinkId link, bool from_client, bool from_server, int64_t duration) {
  const bool cut[2] = {from_client, from_server};
  for (size_t from = 0; from < 2; ++from) {
    if (!cut[from]) continue;
    const int64_t until = loop_.now() + duration;
    links_[link].cut_until[from] = std::max(links_[link].cut_until[from], until);
    loop_.At(until, [this, link, from] { Heal(link, from); });
  }
  for (auto& [id, s] : streams_) {
    if (s.link != link) continue;
    for (const StreamEnd end : {StreamEnd::kClient, StreamEnd::kServer})
      loop_.After(kPingTime + rng_.Below(5 * kSecond),
                  [this, id = id, end] { MissAnswer(id, end); });
  }
}

// Whoever got no answer gives the stream up; the other end learns when the link is whole.
void SimNet::MissAnswer(StreamId id, StreamEnd end) {
  Stream* s = Find(id);
  if (!s || (!IsCut(*s, 0) && !IsCut(*s, 1))) return;
  const int64_t heals = std::max(links_[s->link].cut_until[0], links_[s->link].cut_until[1]);
  for (size_t from = 0; from < 2; ++from)
    s->limit[from] = std::min(s->limit[from], s->delivered[from]);
  loop_.At(heals + Delay(), [this, id, other = OtherEnd(end)] { Lose(id, other); });
  Lose(id, end);
}

void SimNet::Heal(LinkId link, size_t from) {
  if (links_[link].cut_until[from] > loop_.now()) return;  // cut again, for longer
  std::vector<StreamId> ids;
  for (const auto& [id, s] : streams_) {
    if (s.link == link && !s.held[from].empty()) ids.push_back(id);
  }
  for (const StreamId id : ids) {
    for (Stream* s = Find(id); s && !s->held[from].empty() && !IsCut(*s, from); s = Find(id)) {
      const auto [index, what] = std::move(s->held[from].front());
      s->held[from].pop_front();
      Hand(id, s, from, index, what);
    }
  }
}

}  // namespace whet::testing
