// Logistic regression on ps-lite, for failover.py: the roles scheduler, server and worker in one program.
//
//     DMLC_ROLE=... program DATA PASSES BATCH RATE KEYS
//
// DATA has lines of libsvm with the ids 1 to KEYS - 1, each with the value 1. Id 0 is the intercept. Worker i of n
// trains every n-th batch: it pulls the weights of the batch, waits, pushes the sums of the gradients, and waits. A
// server subtracts RATE times each gradient. Each server also counts the records that were pushed to it, under a key of
// its own range. The start is that of MXNet's servers: a node that takes the place of a dead one joins no barrier.
//
// A worker prints DONE and its acknowledged records. In the end worker 0 prints LOSS, the log loss of the model on the
// data, and COUNTED, the records that each server has counted.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "ps/ps.h"

using ps::Key;

struct Record {
  float label;
  std::vector<Key> keys;
};

// The keys of a batch in ascending order, with the counters of the servers, and where each record finds its keys.
struct Batch {
  size_t first, end;
  ps::SArray<Key> keys;
  std::vector<std::vector<uint32_t>> places;
  std::vector<uint32_t> counters;
};

struct Job {
  std::vector<Record> records;
  std::vector<Key> counters;
  size_t passes, batch;
  float rate;
  uint64_t keys;

  // Ids are spread evenly over all keys, so each server has its share of them.
  Key key(uint64_t id) const { return (id + 1) * (ps::kMaxKey / (keys + 2)); }

  void read(const char* path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      Record record;
      words >> record.label;
      record.keys.push_back(key(0));
      for (std::string word; words >> word;) record.keys.push_back(key(std::stoull(word)));
      records.push_back(record);
    }
    for (const auto& range : ps::Postoffice::Get()->GetServerKeyRanges()) counters.push_back(range.end() - 1);
  }

  Batch cut(size_t first) const {
    Batch cut;
    cut.first = first;
    cut.end = std::min(records.size(), first + batch);
    std::vector<Key> all(counters);
    for (size_t at = first; at < cut.end; at++) {
      all.insert(all.end(), records[at].keys.begin(), records[at].keys.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    auto place = [&](Key key) { return uint32_t(std::lower_bound(all.begin(), all.end(), key) - all.begin()); };
    for (size_t at = first; at < cut.end; at++) {
      std::vector<uint32_t> places;
      for (Key key : records[at].keys) places.push_back(place(key));
      cut.places.push_back(places);
    }
    for (Key counter : counters) cut.counters.push_back(place(counter));
    cut.keys.CopyFrom(all.data(), all.size());
    return cut;
  }

  static float margin(const std::vector<uint32_t>& places, const ps::SArray<float>& weights) {
    float sum = 0;
    for (uint32_t place : places) sum += weights[place];
    return sum;
  }

  void step(ps::KVWorker<float>& worker, const Batch& batch) const {
    ps::SArray<float> weights, gradients(batch.keys.size(), 0.f);
    worker.Wait(worker.ZPull(batch.keys, &weights));
    for (size_t at = batch.first; at < batch.end; at++) {
      const auto& places = batch.places[at - batch.first];
      float gradient = 1 / (1 + std::exp(-margin(places, weights))) - records[at].label;
      for (uint32_t place : places) gradients[place] += gradient;
    }
    for (uint32_t counter : batch.counters) gradients[counter] = batch.end - batch.first;
    worker.Wait(worker.ZPush(batch.keys, gradients));
  }

  void train(ps::KVWorker<float>& worker) const {
    std::vector<Batch> batches;
    for (size_t first = batch * ps::MyRank(); first < records.size(); first += batch * ps::NumWorkers()) {
      batches.push_back(cut(first));
    }
    size_t done = 0, steps = 0;
    for (size_t pass = 0; pass < passes; pass++) {
      for (const auto& batch : batches) {
        step(worker, batch);
        done += batch.end - batch.first;
        if (++steps % 4 == 0 || steps == passes * batches.size()) std::cout << "DONE " << done << std::endl;
      }
    }
  }

  void report(ps::KVWorker<float>& worker) const {
    double loss = 0;
    std::vector<float> counted;
    for (size_t first = 0; first < records.size(); first += batch) {
      Batch part = cut(first);
      ps::SArray<float> weights;
      worker.Wait(worker.ZPull(part.keys, &weights));
      for (size_t at = part.first; at < part.end; at++) {
        double sum = margin(part.places[at - part.first], weights);
        loss += std::log1p(std::exp(-std::abs(sum))) + std::max(sum, 0.) - sum * records[at].label;
      }
      counted.clear();
      for (uint32_t counter : part.counters) counted.push_back(weights[counter]);
    }
    std::printf("LOSS %.6f\nCOUNTED", loss / records.size());
    for (float count : counted) std::printf(" %.0f", count);
    std::cout << std::endl;
  }

  // What a server does with a request.
  void handle(std::unordered_map<Key, float>& rows, const ps::KVMeta& meta, const ps::KVPairs<float>& request,
              ps::KVServer<float>* server) const {
    ps::KVPairs<float> answer;
    if (meta.pull) {
      answer.keys = request.keys;
      answer.vals.resize(request.keys.size());
    }
    for (size_t at = 0; at < request.keys.size(); at++) {
      float& row = rows[request.keys[at]];
      bool counts = std::count(counters.begin(), counters.end(), request.keys[at]);
      if (meta.push) row += (counts ? 1 : -rate) * request.vals[at];
      if (meta.pull) answer.vals[at] = row;
    }
    server->Response(meta, answer);
  }
};

int main(int, char** args) {
  Job job;
  job.passes = std::stoull(args[2]);
  job.batch = std::stoull(args[3]);
  job.rate = std::stof(args[4]);
  job.keys = std::stoull(args[5]);
  std::unordered_map<Key, float> rows;
  ps::StartAsync(0);
  job.read(ps::IsWorker() ? args[1] : "/dev/null");
  ps::KVServer<float>* server = nullptr;
  if (ps::IsServer()) {
    server = new ps::KVServer<float>(0);
    server->set_request_handle([&](const ps::KVMeta& meta, const ps::KVPairs<float>& request,
                                   ps::KVServer<float>* from) { job.handle(rows, meta, request, from); });
  }
  std::cout << "STARTED " << ps::MyRank() << (ps::Postoffice::Get()->is_recovery() ? " in a dead one's place" : "")
            << std::endl;
  if (!ps::Postoffice::Get()->is_recovery()) {
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup + ps::kServerGroup + ps::kScheduler);
  }
  if (ps::IsWorker()) {
    ps::KVWorker<float> worker(0, 0);
    job.train(worker);
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
    if (ps::MyRank() == 0) job.report(worker);
    ps::Finalize(0);
  } else {
    ps::Finalize(0);
  }
  delete server;
}
