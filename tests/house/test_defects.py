"""Defects of one line in identity, numbering and resynchronisation, each with the test that fails for it.

A defect that no test fails for shows a test that is missing. `make soak` runs them. Whoever changes a line that has a
defect changes the defect, too.
"""

from __future__ import annotations

import pytest

from helpers.defects import Copy, Defect
from helpers.paths import SOURCE

SEEDS, NODES = "tests/sim/test_sim_seeds.py::test_seeds[0]", "tests/sim/test_sim_nodes.py::test_seeds[0]"
COMMITS, ROLLBACK = "tests/node/test_node_commits.py::test_", "tests/node/test_node_rollback.py::test_"
HISTORY, LIVES = "tests/delivery/test_history.py::test_", "tests/node/test_node_lives.py::test_"
STREAMS = "tests/cli/test_streams.py::test_"
HISTORY = "tests/delivery/test_history.py::test_"
AWAY = "tests/broker/test_away.py::test_"
LINKS, STATE = "tests/broker/test_broker_links.py::test_", "tests/broker/test_client_state.py::test_"
DIGESTS, DURABLE = "tests/broker/test_digests.py::test_", "tests/broker/test_broker_durable.py::test_"
PAGES, CYCLES = "tests/broker/test_pages.py::test_", "tests/broker/test_cycles.py::test_"
ATTACH, ATTACHED = "tests/node/test_attach.py::test_", "tests/broker/test_attached.py::test_"
CLOCK, GAPS = "tests/delivery/test_clock.py::test_", "tests/delivery/test_gaps.py::test_"
MOVE = "tests/node/test_move_queue.py::test_"
FLUSH, STREAM = "tests/broker/test_flushing.py::test_", "tests/delivery/test_stream.py::test_"
ORDER = "tests/sim/test_node_order.py::test_"
GROWTH = "tests/broker/test_growth.py::test_"
DEFECTS = [
    # --- Limits, and time ---
    Defect(
        "delivery/clock.py", "return self._ran + self.seconds", "return self._ran + self._wall() - self._began",
        CLOCK + "a_step_of_eight_days_forward_expires_nothing_and_is_logged",
    ),
    Defect(
        "delivery/clock.py", "return self._began + self.seconds", "return self._wall()",
        CLOCK + "now_never_steps_and_the_wall_does",
    ),
    Defect(
        "broker/intake.py", "= expires - self._handling.ahead", "= expires",
        CLOCK + "a_lease_ends_when_it_would_have_ended_whatever_the_clock_does",
    ),
    Defect(
        "broker/intake.py", "promised = now + self._handling.ahead", "promised = now",
        CLOCK + "a_lease_ends_when_it_would_have_ended_whatever_the_clock_does",
    ),
    Defect(
        "node/store.py", "max(kept_ran, float(", "max(0.0, float(",
        CLOCK + "how_long_nodes_have_run_is_known_from_what_was_kept_last",
    ),
    Defect(
        "delivery/stream.py", "SUSPECTED if self.on_disk.suspected.count else ASKED",
        "ASKED if self.on_disk.asked.count else SUSPECTED", GAPS + "events_that_nobody_has_asked_for_go_first",
    ),
    Defect(
        "delivery/stream.py", "if row.gap is not None:", "if row.entry == ASKED and row.gap is not None:",
        GAPS + "a_gap_is_an_entry_of_the_stream_and_outlives_a_crash",
    ),
    Defect(
        "delivery/stream.py", "if self.on_disk.count or self.gaps:", "if self.on_disk.count:",
        GAPS + "what_is_too_old_is_told_too",
    ),
    Defect(
        "delivery/stream.py", "if not self.on_disk.count and not self.gaps:", "if not self.on_disk.count:",
        GAPS + "what_is_too_old_is_told_too",
    ),
    Defect(
        "delivery/losses.py", "min(one.count + other.count, 2**63 - 1)", "max(one.count, other.count)",
        GAPS + "a_gap_is_an_entry_of_the_stream_and_outlives_a_crash",
    ),
    Defect(
        "delivery/losses.py", "if not partners and len(self) >= GAPS_MAX:", "if False:",
        GAPS + "gaps_of_one_stream_are_few_whatever_a_neighbour_says",
    ),
    Defect(
        "delivery/driver.py", "link.is_durable and name != source and", "link.is_durable and",
        GAPS + "the_owner_is_told_what_a_limit_on_the_way_has_cost_whoever_crashes",
    ),
    Defect(
        "delivery/driver.py", "self.stream(name).append_gap(gap, self.clock.stamp())", "pass",
        GAPS + "the_owner_is_told_what_a_limit_on_the_way_has_cost_whoever_crashes",
    ),
    Defect(
        "delivery/queues.py", "if reader.peer.version >= LOST_SINCE:", "if True:",
        GAPS + "a_client_of_an_older_version_gets_a_notice",
    ),
    Defect(
        "node/migrations.py", "max(expires - ?, 0.0) AS expires", "max(expires - 0 * ?, 0.0) AS expires",
        "tests/house/test_formats.py::test_a_store_of_version_3_is_migrated_and_loses_nothing",
    ),
    # --- Who is who, and sessions ---
    Defect(
        "broker/sessions.py", "if message.session <= last:", "if message.session < last:",
        LINKS + "sessions_of_a_link_only_rise",
    ),
    Defect(
        "broker/sessions.py", "if message.session < link.peer_session:  # from before a cut", "if False:",
        LINKS + "a_greeting_from_before_a_cut_is_ignored",
    ),
    Defect(
        "broker/sessions.py", "if link is not None and link.peer != peer:",
        "if link is not None and link.is_client != message.is_client:", DURABLE + "a_link_stays_of_its_kind",
    ),
    Defect(
        "broker/sessions.py", "if message.name != name:", "if not message.name:",
        LINKS + "a_hello_that_does_not_fit_is_refused_with_a_reason",
    ),
    Defect(
        "broker/sessions.py", "if message.is_client != link.is_client:",
        "if message.is_client and not link.is_client:", LINKS + "a_client_that_greets_as_a_broker_is_refused",
    ),
    Defect(
        "broker/sessions.py", "if link.is_met and message.session > link.peer_session:", "if False:",
        "tests/broker/test_broker_hostile.py::test_a_hello_within_a_session_that_begins_another_closes_the_link",
    ),
    # --- Numbers of messages ---
    Defect(
        "broker/link.py", "or message.seq <= self.last_seq_received:", "or message.seq < self.last_seq_received:",
        LINKS + "a_message_that_comes_twice_changes_nothing",
    ),
    Defect(
        "broker/link.py", "if session_of(message.seq) != self.peer_session or message.seq <= self.last_seq_received:",
        "if message.seq <= self.last_seq_received:", LINKS + "a_message_of_another_session_changes_nothing",
    ),
    Defect(
        "broker/link.py", "if message.seq > self.last_seq_received + 1:",
        "if message.seq > self.last_seq_received + 2:", LINKS + "a_gap_is_the_peers_fault",
    ),
    Defect(
        "broker/link.py", "self.session, self.sent_count, self._synced_at = session, 0, 0",
        "self.session, self._synced_at = session, 0", SEEDS,
    ),
    Defect(
        "broker/link.py",
        "self.peer_session = self.last_seq_received = 0\n        self.is_there = False\n        self.waiting.clear()",
        "self.is_there = False\n        self.waiting.clear()", LINKS + "a_new_connection_forgets_the_session_before",
    ),
    # --- What has settled ---
    Defect(
        "broker/link.py", "not self.is_synced or count < self._synced_at:", "not self.is_synced:",
        LINKS + "what_waits_for_a_link_settles_with_its_resynchronisation_and_not_before",
    ),
    Defect(
        "broker/link.py", "if session_of(seq) != self.session or not self.is_synced", "if not self.is_synced",
        "tests/broker/test_broker_hostile.py::test_absurd_numbers_are_ignored",
    ),
    Defect(
        "broker/link.py", "if count > self.sent_count:", "if count > self.sent_count + 1:",
        LINKS + "a_neighbour_settles_nothing_that_it_was_not_sent",
    ),
    Defect(
        "broker/link.py", "total = self.sent_total - (self.sent_count - count)", "total = self.sent_total",
        "tests/broker/test_incremental.py::test_no_faster_than_the_neighbour_settles_it",
    ),
    Defect(
        "broker/link.py", "if not self._has_unsent:", "if False:",
        "tests/broker/test_broker_forwarding.py::test_settled_waits_while_a_link_is_down",
    ),
    # --- Resynchronisation ---
    Defect(
        "broker/resync.py", 'key = link.digest_key if link.version >= KEYED_DIGESTS else b""', 'key = b""',
        DIGESTS + "after_a_cut_a_neighbour_is_not_taken_to_hold_what_a_client_chose_to_cancel_out",
    ),
    Defect(
        "broker/resync.py", "return [(entry.peer_id, entry.where", "return [(entry.id, entry.where",
        STATE + "of_many_subscriptions_only_those_that_changed_while_the_link_was_cut_are_sent_again",
    ),
    Defect(
        "broker/resync.py", "if bucket_of(id, message.size) in", "if bucket_of(entry.id, message.size) in",
        STATE + "of_many_subscriptions_only_those_that_changed_while_the_link_was_cut_are_sent_again",
    ),
    Defect(
        "broker/resync.py", "                id = entry.peer_id\n", "                id = entry.id\n",
        STATE + "changes_made_while_the_link_is_cut_arrive_when_it_is_back",
    ),
    Defect(
        "broker/resync.py", "                    if id:\n", "                    if not id:\n",
        STATE + "after_a_replacement_refused_in_a_resynchronisation_both_hold_the_same",
    ),
    Defect(
        "broker/resync.py", "if link.is_client or link.action(LinkInput.DIGEST) is not LinkAction.LIST:",
        "if link.is_client:", LINKS + "a_digest_that_was_not_asked_for_closes_the_link",
    ),
    Defect(
        "protocol/digest.py", "(key and mine.counts[at] != theirs.counts[at])", "False",
        DIGESTS + "a_bucket_differs_if_only_the_count_of_its_entries_does",
    ),
    Defect(
        "protocol/digest.py", "for buckets in theirs if key else (theirs.hashes,):", "for buckets in (theirs.hashes,):",
        DIGESTS + "counts_that_are_not_one_for_each_bucket_are_the_peers_fault",
    ),
    Defect(
        "protocol/digest.py", "{expires!r}:", ":", STATE + "a_lease_renewed_while_the_link_is_cut_goes_on",
    ),
    # --- Clients ---
    Defect(
        "broker/client_state.py", "isinstance(message, Digest) and session_of(message.seq) == home.peer_session and",
        "isinstance(message, Digest) and", STATE + "a_digest_of_an_earlier_session_or_a_second_one_is_ignored",
    ),
    Defect(
        "broker/client_state.py", "isinstance(message, Settled) and session_of(message.seq) == home.session:",
        "isinstance(message, Settled):", STATE + "settled_is_of_this_and_all_before_it_in_this_session",
    ),
    Defect(
        "broker/client_state.py", "if self.changed_at[first] > self.settled:",
        "if self.changed_at[first] >= self.settled:", STATE + "what_is_gone_and_has_settled_is_not_remembered",
    ),
    Defect(
        "broker/client_state.py", "{event_prefix(self.name)}{self._token}:", "{event_prefix(self.name)}",
        STATE + "events_of_a_publisher_that_was_restarted_are_not_taken_for_copies",
    ),
    Defect(
        "broker/client_state.py", "if id in self._ids:\n            return False",
        "if id in self._ids:\n            return True", STATE + "an_event_is_handed_on_once",
    ),
    Defect(
        "broker/client_state.py", "dict.fromkeys([*self.changed_at, *self.wheres], seq)",
        "dict.fromkeys(self.wheres, seq)",
        STATE + "what_was_dropped_while_the_link_was_cut_settles_with_the_resynchronisation",
    ),
    # --- What is kept, and what is acknowledged when ---
    Defect(  # events for neighbours in memory only
        "delivery/driver.py", "events, self._is_durable(name), self.clock.stamp()", "events, False, self.clock.stamp()",
        COMMITS + "an_acknowledgement_waits_for_a_commit_that_is_delayed[published_for_a_neighbour_that_is_away]",
    ),
    Defect(
        "delivery/driver.py", "                if links[effect.link].is_durable or effect.link in placed:\n",
        "                if type(effect) is Deliver and links[effect.link].is_durable:\n",
        COMMITS + "an_acknowledgement_waits_for_a_commit_that_is_delayed[published_for_a_neighbour_that_is_away]",
    ),
    Defect(  # acknowledging to the neighbour before the commit
        "delivery/neighbour.py", "self._ticket = self._driver.journal.ticket", "self._ticket = 0",
        COMMITS + "an_acknowledgement_waits_for_a_commit_that_is_delayed[received_for_a_durable_subscription]",
    ),
    Defect(
        "delivery/publisher.py", "self._ticket = driver.journal.ticket", "self._ticket = 0",
        COMMITS + "nothing_acknowledges_what_a_power_cut_has_lost[published_for_a_durable_subscription]",
    ),
    Defect(
        "delivery/publisher.py", "if link is None or not link.is_met:", "if link is None:",
        "tests/node/test_node.py::test_nothing_counts_as_published_after_the_end_of_a_session",
    ),
    Defect(
        "delivery/queues.py", "self.stream.append(event, kept=True,", "self.stream.append(event, kept=False,",
        COMMITS + "an_acknowledgement_waits_for_a_commit_that_is_delayed[published_for_a_durable_subscription]",
    ),
    Defect(
        "delivery/queues.py", "self._driver.journal.put_queue(row)\n        queue.connect()", "queue.connect()",
        COMMITS + "an_acknowledgement_waits_for_a_commit_that_is_delayed[accepted_durable_subscription]",
    ),
    Defect(
        "delivery/queues.py", "elif isinstance(message, Settled) and self.is_settled:",
        "elif isinstance(message, Settled):",
        "tests/node/test_node_durable.py::test_a_durable_subscription_has_settled_when_its_own_message_has",
    ),
    Defect(
        "delivery/stream.py", "while memory and memory[0][0] <= number:", "while memory and memory[0][0] < number:",
        "tests/delivery/test_stream.py::test_a_stream_brings_everything_in_order",
    ),
    Defect(
        "delivery/stream.py", "self._journal.discard(self.peer, number)\n            self.on_disk.drop_through",
        "self.on_disk.drop_through", COMMITS + "an_acknowledgement_of_a_reader_that_is_lost_costs_a_copy_and_no_event",
    ),
    Defect(
        "delivery/stream.py", "self._send, self._cursor = send, after", "self._send, self._cursor = send, self._last",
        NODES,
    ),
    Defect(
        "delivery/stream.py", "self._memory_waiting.extendleft(reversed(self._memory_sent))",
        "self._memory_waiting.extendleft(self._memory_sent)",
        "tests/delivery/test_stream.py::test_a_stream_brings_everything_in_order",
    ),
    Defect(
        "delivery/stream.py", "if attachment != self._attachments or self._send is None:", "if self._send is None:",
        "tests/delivery/test_stream.py::test_a_stream_brings_everything_in_order",
    ),
    Defect("delivery/stream.py", "through = last if is_end else", "through = self._last if is_end else", NODES),
    Defect(
        "node/store.py", "kept.reverse()", "pass", "tests/node/test_node_store.py::test_committed_is_there_again",
    ),
    Defect(
        "protocol/messages.py", "return max(last + 1, min(", "return max(last, min(",
        "tests/node/test_node.py::test_a_name_is_taken_over",
    ),
    # --- Which history ---
    Defect(
        "delivery/history.py", "if copied_at is None and not is_behind and not restored:",
        "if copied_at is None and not restored:", ROLLBACK + "a_rollback_that_no_neighbour_remembers_is_noticed",
    ),
    Defect(
        "delivery/history.py", "if copied_at is None and not is_behind and not restored:",
        "if not is_behind and not restored:", ROLLBACK + "a_rollback_that_no_neighbour_remembers_is_noticed",
    ),
    Defect(
        "delivery/history.py", "return self.lacks(message) or", "return",
        HISTORY + "a_store_is_an_old_copy_if_a_neighbour_knows_more_of_it",
    ),
    Defect(
        "delivery/history.py", "message.confirmed.get(last, 0) > taken.get(last, 0)", "False",
        HISTORY + "a_store_is_an_old_copy_if_a_neighbour_knows_more_of_it",
    ),
    Defect(
        "delivery/history.py", "if row.store and row.store != message.store:", "if False:",
        ROLLBACK + "an_empty_store_under_a_known_name_is_refused_and_swallows_nothing",
    ),
    Defect(
        "delivery/neighbour.py", "self._driver.history.ordinal(life) == ordinal_of(number) > 0",
        "ordinal_of(number) > 0", ROLLBACK + "events_kept_under_a_reused_ordinal_before_the_first_contact_arrive",
    ),
    Defect(
        "delivery/queues.py", "return ordinal_of(message.number) <= ordinal and", "return",
        ROLLBACK + "an_acknowledgement_of_a_life_that_was_lost_drops_nothing",
    ),
    Defect(
        "delivery/neighbour.py", "wire.Received(received, arrivals.committed.get(life, 0))",
        "wire.Received(received, received)", ROLLBACK + "what_is_taken_and_not_on_disk_is_not_confirmed",
    ),
    Defect(
        "delivery/stream.py", "return self._send is not None and self._sent_after < number <= self._cursor",
        "return True",
        "tests/delivery/test_stream.py::test_an_acknowledgement_may_be_of_what_was_sent_since_the_receiver_came",
    ),
    Defect(
        "delivery/driver.py", "self.first_number = max(self.first_number, stream.counted)", "pass",
        ROLLBACK + "the_numbers_of_a_cancelled_subscription_are_not_given_again",
    ),
    Defect(
        "delivery/received.py", "self.taken[row.life] = self.committed[row.life] = row.number",
        "self.taken[row.life] = row.number",
        "tests/delivery/test_received.py::test_what_was_committed_is_known_after_a_restart",
    ),
    Defect(
        "delivery/received.py", "self._forget(min(place - LIVES_KEPT, before - 1))",
        "self._forget(place - LIVES_KEPT)",
        "tests/delivery/test_received.py::test_the_life_that_was_committed_before_the_last_one_stays",
    ),
    Defect(
        "delivery/queues.py", "or not is_durable_name(name):", "or not name:",
        ROLLBACK + "only_durable_subscriptions_of_clients_are_returned",
    ),
    Defect(
        "delivery/queues.py", "if name in self._cancelled:", "if False:",
        ROLLBACK + "returned_interest_does_not_revive_what_a_client_has_ended_since",
    ),
    Defect(
        "delivery/neighbour.py", "max(each.number for each in read)", "read[-1].number",
        "tests/node/test_node_numbers.py::test_falling_numbers_in_a_frame_do_not_take_back_what_was_acknowledged",
    ),
    # --- Resynchronisation in pages ---
    Defect(
        "broker/pages.py", "len(id) + len(where) <= self._characters)", "True)",
        PAGES + "a_page_has_as_many_entries_as_there_is_room_for_and_is_sent_when_the_one_before_was_taken",
    ),
    Defect(
        "broker/pages.py", "            elif wheres[id] != self._sent.get(id):\n", "            elif False:\n",
        PAGES + "a_page_lists_what_holds_when_it_is_sent",
    ),
    Defect(
        "broker/pages.py", "                self._gone[id] = None", "                pass",
        PAGES + "what_was_listed_and_changes_is_listed_again_and_what_leaves_is_withdrawn_at_the_end",
    ),
    Defect(
        "broker/pages.py", "            if bucket is None:\n                return None\n",
        "            if bucket is None:\n                continue\n",
        PAGES + "what_changes_in_a_bucket_that_is_equal_travels_in_a_page_and_not_in_the_last_one",
    ),
    Defect(
        "broker/pages.py", "return seq == self._last", "return True",
        PAGES + "an_acceptance_of_no_page_closes_the_link_and_one_of_an_earlier_page_is_ignored",
    ),
    Defect(
        "broker/resync.py", "self._intake.hold(table, link, stays, before.where, before.expires)", "pass",
        PAGES + "t1_7_an_event_a_replace_and_a_cut_between_any_two_pages",
    ),
    Defect(
        "broker/resync.py", "if stays not in held:", "if True:",
        PAGES + "t1_7_what_had_settled_stays_through_cuts_although_it_is_changed_more_than_once",
    ),
    Defect(
        "broker/resync.py", "if id in listed or link.received_pages.has(table, id):", "if id in listed:",
        PAGES + "t1_7_an_event_a_replace_and_a_cut_between_any_two_pages",
    ),
    Defect(
        "broker/forwarding.py", "        if link.is_listing:\n", "        if False:\n",
        PAGES + "t1_7_an_event_a_replace_and_a_cut_between_any_two_pages",
    ),
    Defect(
        "broker/growth.py", "            if link.is_met:\n", "            if link.is_met and not link.is_listing:\n",
        PAGES + "a_space_that_grows_between_pages_is_said_before_the_next_one",
    ),
    # --- Cycles ---
    Defect(
        "broker/sessions.py", "        if link.admission.is_bare:\n", "        if True:\n",
        CYCLES + "t2_10_a_link_with_interest_stays_down_with_all_that_is_kept_for_it",
    ),
    Defect(
        "broker/sessions.py", "            self._give_up(link, message.reason)", "            pass",
        CYCLES + "hole_43_a_link_that_the_other_side_refuses_for_a_cycle_counts_for_nothing_and_leaves_no_record",
    ),
    Defect(
        "broker/link.py", "        if self.admission.is_new:  # nobody waits for it\n", "        if False:\n",
        CYCLES + "a_new_link_counts_for_settling_while_it_is_connected",
    ),
    Defect(
        "broker/link.py", "        if self.admission.is_new:\n            self.mark_unsent()\n", "",
        CYCLES + "a_new_link_counts_for_settling_while_it_is_connected",
    ),
    Defect(
        "broker/sessions.py", "        if self._closes_cycle(link.members, link):\n            return False\n", "",
        CYCLES + "a_cycle_that_shows_after_the_greeting_is_found_before_anything_is_compared",
    ),
    Defect(
        "broker/greetings.py", "if each is not link and not each.admission.cycle]", "if each is not link]",
        CYCLES + "what_lies_behind_a_refused_link_may_come_by_another_one",
    ),
    Defect(
        "broker/sessions.py", "            link = self._new_link(peer)\n            if link.is_client:\n",
        "            link = self.add_link(peer)\n            if link.is_client:\n",
        CYCLES + "hole_49_a_try_that_is_refused_scans_nothing_and_writes_nothing",
    ),
    Defect(
        "node/server.py", "return CYCLE_SECONDS if", "return 0.0 if",
        "tests/node/test_node_cycles.py::test_hole_43_and_49_nobody_waits_for_a_refused_link",
    ),
    # --- What brokers must agree on, and a space that grows ---
    Defect(
        "broker/sessions.py", 'if not message.is_client and theirs not in ("", own):', "if False:",
        "tests/broker/test_agreement.py::test_a_neighbour_that_routes_otherwise_is_refused_by_name",
    ),
    Defect(
        "broker/sessions.py", "(steps == 0) != (growth.open_step == 0)", "False",
        GROWTH + "a_lost_disk_takes_the_space_of_its_neighbour",
    ),
    Defect(
        "delivery/driver.py", "bare = encoded if event.cell < 0 else", "bare = encoded if True else",
        "tests/delivery/test_kept_cells.py::test_kept_events_are_not_read_by_a_partition_that_has_changed",
    ),
    Defect(
        "broker/growth.py", "return origin < self._origin", "return origin > self._origin",
        GROWTH + "of_two_proposals_one_wins_and_the_other_is_proposed_on_top",
    ),
    Defect(
        "broker/growth.py", "if link is not None and link.is_met and not link.is_synced:", "if False:",
        GROWTH + "a_neighbour_that_is_met_hears_of_the_better_proposal_at_once",
    ),
    Defect(
        "broker/growth.py", "            if link.is_met:\n", "            if link.is_synced:\n",
        GROWTH + "a_neighbour_that_is_met_hears_of_a_better_proposal_that_comes_later",
    ),
    Defect(
        "broker/growth.py", "link.is_listing or link.is_synced))", "True))",
        GROWTH + "a_neighbour_that_is_met_hears_what_has_opened_before_the_next_step",
    ),
    Defect(
        "broker/growth.py", "if not link.is_client and link.greeted_in != self.open_text:", "if False:",
        GROWTH + "a_neighbour_that_was_greeted_before_a_step_opened_hears_of_it_before_any_event",
    ),
    Defect(
        "broker/growth.py", "self._resumes = not self.is_open and", "self._resumes = False and",
        GROWTH + "a_proposal_survives_a_restart_of_whoever_proposed_it",
    ),
    Defect(
        "broker/growth.py", "if self.open_step and not step:", "if False:",
        GROWTH + "a_lost_disk_takes_the_space_of_its_neighbour",
    ),
    Defect(
        "broker/growth.py", "elif not space.extends(own):", "elif False:",
        GROWTH + "an_opened_step_is_never_taken_back",
    ),
    Defect(
        "broker/growth.py", 'self._wanted = "" if space == self.space else space.to_json()', 'self._wanted = ""',
        GROWTH + "of_two_proposals_one_wins_and_the_other_is_proposed_on_top",
    ),
    Defect(
        "broker/intake.py", "            self._growth.check_clause(where)\n", "",
        GROWTH + "a_clause_may_use_what_is_new_only_when_it_has_opened",
    ),
    Defect(
        "broker/router.py", "waits = not source.is_client and source.is_ahead_of(self.space)", "waits = False",
        "tests/delivery/test_unread.py::test_a_neighbour_from_before_the_growth_gets_what_it_could_not_read",
    ),
    Defect(
        "delivery/neighbour.py", "read = messages[: outcomes.index(Outcome.UNREAD)] if self._has_unread else messages",
        "read = messages",
        "tests/delivery/test_unread.py::test_a_neighbour_from_before_the_growth_gets_what_it_could_not_read",
    ),
    # --- Who may come ---
    Defect(
        "delivery/doors.py", "if dialled and name != dialled:", "if False:",
        "tests/delivery/test_doors.py::test_who_was_dialled_is_who_answers",
    ),
    Defect(
        "delivery/doors.py", "if was_met or self.is_expected(message.name):", "if self.is_expected(message.name):",
        "tests/delivery/test_doors.py::test_a_client_cannot_have_the_name_of_a_neighbour",
    ),
    Defect(
        "delivery/doors.py", "if not self.is_expected(name):", "if False:",
        "tests/node/test_node_strangers.py::test_a_stranger_leaves_nothing_behind",
    ),
    # --- One that is lost for good, and those in its place ---
    Defect(
        "delivery/attachments.py", "if name in names and name in origins:", "if False:",
        "tests/delivery/test_attachments.py::test_what_comes_from_one_of_them_goes_to_the_others_whether_anybody_asked_or_not",
    ),
    Defect(
        "delivery/attachments.py", "new = [each for each in (lost, *names) if each != source and each not in found]",
        "new = [each for each in (lost, *names) if each not in found]",
        "tests/delivery/test_attachments.py::test_what_comes_from_one_of_them_goes_to_the_others_whether_anybody_asked_or_not",
    ),
    Defect(
        "delivery/driver.py",
        "count = self.stream(row.name).copy_from(self.stream(row.instead_of), self.clock.stamp())", "count = 0",
        ATTACH + "children_attached_one_after_the_other_get_all_that_was_kept_anywhere",
    ),
    Defect(
        "delivery/driver.py", "self.journal.put_attachment(row)\n        return count", "return count",
        ATTACH + "children_attached_one_after_the_other_get_all_that_was_kept_anywhere",
    ),
    Defect(
        "node/schema.py", "ORDER BY number DESC", "ORDER BY number",
        "tests/delivery/test_attachments.py::test_what_is_kept_for_one_receiver_is_kept_for_another_one_too",
    ),
    Defect(
        "broker/sessions.py", "lost.set_members((), VERSION_MAX)", "pass",
        ATTACHED + "those_behind_a_lost_neighbour_may_come_in_its_place",
    ),
    Defect(
        "broker/settling.py", 'others = (but, "" if source is None else source.stands_for)', "others = (but,)",
        ATTACHED + "one_in_the_place_of_a_lost_neighbour_does_not_wait_for_it",
    ),
    Defect(
        "broker/link.py", "return source not in (self.name, self.stands_for)", "return source != self.name",
        ATTACHED + "what_came_from_the_lost_one_is_not_said_to_those_in_its_place",
    ),
    Defect(
        "delivery/doors.py", "if name in self._lost:", "if False:",
        ATTACH + "a_lost_broker_that_comes_back_is_refused_until_it_is_forgotten",
    ),
    Defect(
        "broker/link.py", "return self.is_synced and self.received_pages.is_whole and self.has_settled",
        "return self.is_synced and self.has_settled",
        ATTACHED + "a_link_that_is_synced_and_has_not_heard_what_the_neighbour_lists_does_not_know_all",
    ),
    # --- A durable subscription moves to another broker ---
    Defect(
        "delivery/stream.py", "self._journal.copy(other.peer, self.peer, self.counted)  # on disk", "pass  # on disk",
        MOVE + "all_that_is_kept_moves_and_a_client_that_was_away_follows",
    ),
    Defect(
        "client/client.py", "0 if before is None else before.connections", "0",
        MOVE + "a_client_that_is_connected_reads_on_without_a_gap",
    ),
    Defect(
        "delivery/queues.py", "self._driver.journal.put_moved(queue.name, url)", "pass",
        MOVE + "a_move_that_is_broken_off_leaves_what_is_kept_to_the_client_or_to_the_next_try",
    ),
    Defect(
        "delivery/queues.py", "if refilling is None or message.place > refilling.place + 1:", "if refilling is None:",
        MOVE + "a_move_that_is_broken_off_leaves_what_is_kept_to_the_client_or_to_the_next_try",
    ),
    Defect(
        "node/moving.py", "    queue.flush()", "    pass", MOVE + "what_cannot_be_moved_stays",
    ),
    # --- Order: flushes, and disks that are full ---
    Defect(
        "broker/client_state.py", "if self.version < FLUSHES:  # there is no other answer", "if True:",
        STATE + "a_flush_waits_for_its_own_answer",
    ),
    Defect(
        "broker/client_state.py", "if home.is_flushing else sends", "if False else sends",
        STATE + "a_flush_that_meets_a_cut_is_said_again_when_the_broker_knows_what_is_wanted",
    ),
    Defect(
        "broker/flushing.py", "return self.answered < max(self.asked, self.sent) and link.is_synced",
        "return self.sent < self.asked and link.is_synced", FLUSH + "a_flush_that_a_cut_has_met_is_said_again",
    ),
    Defect(
        "broker/flushing.py", "self.asked = self.sent + 1", "self.asked = max(1, self.sent)",
        FLUSH + "every_other_neighbour_is_asked_and_waited_for",
    ),
    Defect(
        "broker/flushing.py", "return self.answered < self.sent and session_of(self.seq) == link.session",
        "return False", FLUSH + "flushes_without_end_cost_one_message_at_a_time",
    ),
    Defect(
        "broker/flushing.py", "if session_of(message.seq) != source.session:", "if False:",
        FLUSH + "a_flush_that_a_cut_has_met_is_said_again",
    ),
    Defect(
        "broker/flushing.py", "source.waiting.hold(message.seq) if source.version < FLUSHES else None", "None",
        FLUSH + "a_client_of_an_older_version_hears_settled_and_not_too_early",
    ),
    Defect(
        "broker/sessions.py", "self._flushing.forget(name)", "pass",
        FLUSH + "a_flush_does_not_wait_for_a_neighbour_that_is_forgotten",
    ),
    Defect(
        "delivery/driver.py", "self.stream(effect.link).call_behind(partial(endpoint.send, message))",
        "endpoint.send(message)", ORDER + "a_flush_is_answered_behind_a_backlog_whatever_settles_meanwhile",
    ),
    Defect(
        "delivery/stream.py", "while self._marks and self._marks[0][0] <= self._cursor:", "while self._marks:",
        STREAM + "a_call_behind_what_was_appended_waits_until_that_is_sent",
    ),
    Defect(
        "delivery/neighbour.py", "life != self._life or postponed.waits_for(message.event))", "life != self._life)",
        ORDER + "events_of_one_publisher_stay_in_order_while_a_disk_on_the_way_is_full",
    ),
    Defect(
        "delivery/neighbour.py", "if self._postponed or self._postponed.has_left_out:", "if False:",
        ORDER + "a_flush_is_answered_behind_events_that_wait_for_a_full_disk",
    ),
    Defect(
        "delivery/neighbour.py", "return self._postponed.has_left_out and not self._postponed", "return False",
        ORDER + "what_is_too_much_to_wait_for_a_full_disk_comes_again_in_order",
    ),
    Defect(
        "delivery/neighbour.py", "elif not self._has_unread:  # else it is asked", "elif True:  # else it is asked",
        ORDER + "a_flush_is_not_answered_while_events_before_it_cannot_be_read",
    ),
    Defect(
        "delivery/postponed.py", "self._publishers[publisher] -= 1", "self._publishers[publisher] = 0",
        "tests/delivery/test_postponed.py::test_what_a_publisher_published_waits_as_long_as_anything_before_it_does",
    ),
    # --- What settling waits for ---
    Defect(
        "broker/placeholders.py", "        self._hold(link, list(link.pending.unsettled))", "        pass",
        AWAY + "an_advertisement_that_was_under_way_counts_as_not_known",
    ),
    Defect(
        "broker/placeholders.py", "[id for id in changed if link.is_away or id in link.pending.placeholders]", "[]",
        AWAY + "all_that_is_advertised_meanwhile_is_kept_for_the_neighbour",
    ),
    Defect(
        "broker/placeholders.py",
        "                self._handling.record(SubscriptionRecord(link.peer, id, where))\n", "",
        AWAY + "a_placeholder_is_there_after_a_crash_and_goes_when_it_has_settled",
    ),
    Defect(
        "broker/waits.py", "return all(link.is_away or max(", "return any(link.is_away or max(",
        AWAY + "what_a_neighbour_settles_except_behind_others_is_passed_on_with_their_names",
    ),
    Defect(
        "broker/waits.py", "            if len(self._excepted) < EXCEPTED_MAX:\n", "            if True:\n",
        AWAY + "what_waits_while_a_neighbour_is_away_is_bounded",
    ),
    Defect(
        "broker/settling.py", "if excepted is not None and link.version >= EXCEPTIONS:", "if excepted is not None:",
        AWAY + "who_does_not_know_exceptions_waits_as_before",
    ),
    Defect(
        "broker/resync.py", "if bucket_of(id, message.size) in buckets and not link.pending.is_placeholder(id):",
        "if bucket_of(id, message.size) in buckets:", AWAY + "placeholders_are_not_compared_when_the_neighbour_returns",
    ),
    Defect(
        "broker/greetings.py", "self._handling.send(link.name, Durable(link.next_seq(), is_durable))",
        "self.greet(link)",
        AWAY + "what_is_durable_about_a_subscription_settles_together_with_it",
    ),
    Defect(
        "delivery/driver.py", "return link.is_away or bool(link.pending.placeholders)", "return False",
        "tests/delivery/test_absences.py",
    ),
    Defect(
        "delivery/absences.py", "now if link.name in there else", "now if link.is_up else",
        "tests/delivery/test_absences.py::test_one_that_greets_and_says_nothing_is_away",
    ),
    # --- Lives, restores and refusals ---
    Defect(
        "delivery/history.py", "max(0, min(number, end) - max(", "max(0, number - max(",
        HISTORY + "what_is_missing_of_numbers_that_a_peer_has_made_up_fits_into_a_store",
    ),
    Defect(
        "delivery/history.py", " or own.lacks(message):", ":",
        LIVES + "a_restored_broker_does_not_silence_a_healthy_neighbour",
    ),
    Defect(
        "delivery/history.py", "return (mark or row.id) if", "return row.id if",
        LIVES + "of_two_copies_of_a_restored_file_one_is_admitted",
    ),
    Defect(
        "delivery/history.py", "[*restored][-RESTORES_MAX:]", "[*restored][-LIVES_SENT:]",
        HISTORY + "a_store_that_was_restored_often_is_told_from_an_old_copy_of_it",
    ),
    Defect(
        "delivery/neighbour.py", "since = min(each.since for each in self._rollbacks)",
        "since = self._rollbacks[-1].since", LIVES + "of_two_rollbacks_before_a_neighbour_comes_both_are_announced",
    ),
    Defect(
        "delivery/neighbour.py", "characters + size > RETURNED_CHARACTERS_MAX", "False",
        LIVES + "returned_interest_goes_in_messages_of_bounded_size",
    ),
    Defect(
        "delivery/driver.py", "            self.announce_rollback()\n", "            pass\n",
        LIVES + "a_rollback_that_only_a_neighbour_notices_is_announced_for_durable_subscriptions_here",
    ),
    Defect(
        "delivery/driver.py", "bool(row.store) and row.store in (refused.id, store)", "True",
        LIVES + "only_a_neighbour_that_was_met_ends_a_broker_as_an_old_copy",
    ),
    Defect(
        "delivery/driver.py", "if life and life == known and hello.session <= session:", "if False:",
        LIVES + "a_greeting_that_is_replayed_is_refused",
    ),
    Defect("delivery/doors.py", "if not self.is_expected(name):", "if False:", NODES),
    Defect("delivery/history.py", "if row.store and row.store != message.store:", "if False:", NODES),
    Defect(
        "delivery/queues.py", "        self._driver.announce_rollback()\n", "        pass\n",
        LIVES + "of_two_rollbacks_before_a_neighbour_comes_both_are_announced",
    ),
    Defect(
        "delivery/queues.py", "and not self._has_asked(queue, rollback.at):", ":",
        LIVES + "a_client_that_asks_again_long_after_a_restore_hears_what_may_be_missing",
    ),
    Defect(
        "delivery/queues.py", "where = self._known(where, name)", "pass",
        LIVES + "returned_interest_in_what_the_space_had_only_later_keeps_everything",
    ),
    Defect(
        "node/server.py", "        self.gate.shut()\n", "        pass\n",
        LIVES + "who_is_refused_for_its_life_acknowledges_nothing_more",
    ),
    Defect(
        "node/metrics.py", "len(others - ours)", "len(others | ours)",
        LIVES + "a_client_that_asks_again_long_after_a_restore_hears_what_may_be_missing",
    ),
    # --- What a command names, prints and is told ---
    Defect(
        "errors.py", 'return "" if stat.S_ISREG(mode) else', 'return "" if not stat.S_ISDIR(mode) else',
        "tests/node/test_admin.py::test_a_backup_replaces_backups_only",
    ),
    Defect(
        "node/backup.py", 'return "store" if read_mark(connection) is None else "backup"', 'return "backup"',
        ROLLBACK + "a_backup_does_not_overwrite_the_store_of_another_broker",
    ),
    Defect(
        "broker/forwarding.py", "self.counts_of_gone.note_all(self.links.pop(name).counts)", "self.links.pop(name)",
        "tests/node/test_node.py::test_totals_of_events_do_not_fall_when_a_client_is_forgotten",
    ),
    Defect(
        "cli/subscribe.py", "    check_output()\n", "", STREAMS + "without_standard_output_nothing_is_acknowledged",
    ),
    Defect(
        "cli/publish.py", "elif isinstance(error, CallerError):", "elif error:",
        STREAMS + "what_was_not_acknowledged_is_not_said_to_be_refused",
    ),
    Defect(
        "space/json_values.py", "        if twice is not None:", "        if False:",
        STREAMS + "a_key_that_is_given_twice_is_refused_wherever_events_are_read",
    ),
    Defect(
        "client/client.py", "if not (_TEXT.issuperset(map(type, event))", "if not (True",
        "tests/client/test_client_arguments.py::test_arguments_of_another_type_are_refused_before_they_are_sent",
    ),
]  # fmt: skip
each_defect = pytest.mark.parametrize("defect", DEFECTS, ids=[f"{each.path}: {each.wrong.strip()}" for each in DEFECTS])


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("copy"))


@each_defect
def test_a_defect_can_be_put_in(defect: Defect) -> None:
    assert defect.applied((SOURCE / defect.path).read_text())


@pytest.mark.soak
def test_the_tests_pass_without_a_defect(copy: Copy) -> None:
    failed, said = copy.fails(list(dict.fromkeys(each.test for each in DEFECTS)))
    assert not failed, said


@pytest.mark.soak
@each_defect
def test_no_defect_survives(defect: Defect, copy: Copy) -> None:
    with copy.having(defect):
        failed, said = copy.fails([defect.test])
    assert failed, f"{defect.test} passes with {defect.wrong!r} in place of {defect.right!r}\n{said}"
