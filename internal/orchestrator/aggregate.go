package orchestrator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"comet/models"
)

// maxAggregated bounds how long results are that are put together, in bytes of all of
// them. One that is taken as it is may be as long as any.
const maxAggregated = 8 << 20

// share is a part of a task as it stands, with what it gave where it has succeeded.
type share struct {
	models.Task

	// output is without the white space at its ends, nil where it was not read.
	output []byte
	// sum stands for output, long or not.
	sum [32]byte
}

// outcome is what becomes of a task whose parts stand so.
type outcome struct {
	// over is set where the task ends: failed, or done.
	over   bool
	failed *share // the part whose failure it is, nil for none
	text   string // why it failed, "" where it has not
	taken  *share // the part whose result it is, nil for output
	output []byte
}

// judge says what becomes of a task for which so many workers were wanted and whose parts
// stand so.
func judge(how models.Aggregate, wanted int, parts []share) outcome {
	var done, failed []*share
	for i := range parts {
		switch p := &parts[i]; {
		case p.State == models.TaskDone:
			done = append(done, p)
		case p.State.Ended():
			failed = append(failed, p)
		}
	}
	earliest := func(a, b *share) int { return a.EndedAt.Compare(*b.EndedAt) }
	slices.SortStableFunc(done, earliest)
	slices.SortStableFunc(failed, earliest)
	open := len(parts) - len(done) - len(failed)
	switch {
	case how == models.AggregateMajority:
		return majority(done, failed, open, wanted)
	case how == models.AggregateFirst && len(done) > 0:
		return outcome{over: true, taken: done[0]}
	case how == models.AggregateAll && len(failed) > 0:
		return failure(failed[0], len(parts), "of all")
	case open > 0:
		return outcome{}
	case len(done) == 0:
		return failure(failed[len(failed)-1], len(parts), "the last")
	case how == models.AggregateAll:
		return outcome{over: true, output: listed(parts)}
	}
	return outcome{over: true, output: merged(done)}
}

// failure is the end of a task because of one of its parts.
func failure(p *share, of int, which string) outcome {
	text := p.Error
	if of > 1 {
		text = fmt.Sprintf("%s (%s %d workers: %s)", p.Error, which, of, p.AgentID)
	}
	return outcome{over: true, failed: p, text: text}
}

// majority finds the result that more than half of all that were wanted have given. One
// that cannot be reached any more is not waited for.
func majority(done, failed []*share, open, wanted int) outcome {
	votes, most := map[[32]byte][]*share{}, 0
	made := len(done) + len(failed) + open
	all := max(wanted, made)
	for _, p := range done {
		agree := append(votes[p.sum], p)
		if votes[p.sum] = agree; len(agree) > all/2 {
			return outcome{over: true, taken: agree[0]}
		}
		most = max(most, len(agree))
	}
	switch {
	case most+open > all/2:
		return outcome{}
	case len(done) == 0 && len(failed) > 0:
		return failure(failed[len(failed)-1], made, "the last")
	}
	return outcome{over: true, text: fmt.Sprintf("no majority: %d of %d workers agree at most", most+open, all)}
}

// listed is the list of all results, in the order in which their workers were chosen.
func listed(parts []share) []byte {
	type result struct {
		AgentID string          `json:"agent_id"`
		Output  json.RawMessage `json:"output"`
	}
	list := make([]result, len(parts))
	for i, p := range parts {
		list[i] = result{p.AgentID, asJSON(p.output)}
	}
	out, err := json.Marshal(list)
	if err != nil {
		return nil // asJSON gives nothing that fails
	}
	return out
}

// asJSON is a result as a value: what is JSON as it is, and other text as a string.
func asJSON(output []byte) json.RawMessage {
	if json.Valid(output) {
		return output
	}
	text, _ := json.Marshal(string(output)) // a string never fails
	return text
}

// merged makes one result of those of several workers: members of objects together, of
// which the earliest worker's count, the entries of lists behind each other, and texts
// behind each other, a line each.
func merged(done []*share) []byte {
	if out, ok := union(done); ok {
		return out
	}
	if out, ok := chained(done); ok {
		return out
	}
	var texts [][]byte
	for _, p := range done {
		if len(p.output) > 0 {
			texts = append(texts, p.output)
		}
	}
	return bytes.Join(texts, []byte{'\n'})
}

// union unites objects; ok is false where one of the results is none.
func union(done []*share) (out []byte, ok bool) {
	all := map[string]json.RawMessage{}
	for _, p := range slices.Backward(done) {
		if !bytes.HasPrefix(p.output, []byte{'{'}) || json.Unmarshal(p.output, &all) != nil {
			return nil, false
		}
	}
	out, err := json.Marshal(all)
	return out, err == nil
}

// chained puts lists behind each other; ok is false where one of the results is none.
func chained(done []*share) (out []byte, ok bool) {
	all := []json.RawMessage{}
	for _, p := range done {
		var list []json.RawMessage
		if !bytes.HasPrefix(p.output, []byte{'['}) || json.Unmarshal(p.output, &list) != nil {
			return nil, false
		}
		all = append(all, list...)
	}
	out, err := json.Marshal(all)
	return out, err == nil
}
