# SPDX-License-Identifier: MIT
# Two threads, and two queues: each round hands over to the other thread and back.
rounds = ARGV[0].to_i
there = Thread::Queue.new
back = Thread::Queue.new
other = Thread.new { rounds.times { back << there.pop + 1 } }
sum = 0
rounds.times do |i|
  there << i
  sum += back.pop
end
other.join
puts sum
