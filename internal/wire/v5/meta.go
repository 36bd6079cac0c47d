package v5

import (
	"strconv"
	"strings"
)

// Retry is what DATA says of a repeated request (PROTOCOL_V5 §8.2).
type Retry struct {
	// Attempt is retry=, 0 in a first request.
	Attempt int
	// Max is max=, how often it may be repeated, 0 where nothing is said. It is read
	// beside retry= only.
	Max int
	// Fallback is who is asked next, the zero Address where nothing is said.
	Fallback Address
	// From is fallback_from=, who was asked before.
	From Address
	// Reason is reason=, the code why, such as E31, or a word.
	Reason string
}

// Retry reads retry, max, fallback, fallback_from and reason. The error is an *Error
// with E10, or E13 for an agent.
func (d Data) Retry() (Retry, error) {
	var r Retry
	for _, problem := range []error{
		d.count(keyRetry, &r.Attempt),
		d.agent(keyFallback, &r.Fallback),
		d.agent(keyFallbackFrom, &r.From),
	} {
		if problem != nil {
			return Retry{}, problem
		}
	}
	if _, ok := d.Pair(keyRetry); ok {
		if err := d.count(keyMax, &r.Max); err != nil {
			return Retry{}, err
		}
	}
	r.Reason, _ = d.Get(keyReason)
	return r, nil
}

// Parent is the number of the message that caused this one, pid=M5 (§10.2), 0 where
// nothing is said. The error is an *Error with E10.
func (d Data) Parent() (int, error) {
	text, ok := d.Get(keyParent)
	if !ok {
		return 0, nil
	}
	n, ok := number(text, 'M', 4)
	if !ok || n == 0 {
		return 0, badPair(E10, keyParent, "M and a number, such as M5", text)
	}
	return n, nil
}

// Agents reads agents=W1,W2, the answer to a query (§12.4), nil where nothing is said.
// The error is an *Error with E13.
func (d Data) Agents() ([]Address, error) {
	p, ok := d.Pair(keyAgents)
	if !ok {
		return nil, nil
	}
	agents := make([]Address, 0, strings.Count(p.Raw, ",")+1)
	for id := range p.List() {
		a, err := ParseAddress(id)
		if err != nil || a.Many() {
			return nil, badPair(E13, keyAgents, "ids such as W1,W2", p.Raw)
		}
		agents = append(agents, a)
	}
	return agents, nil
}

// count reads a whole number of at most four digits.
func (d Data) count(key string, to *int) error {
	text, ok := d.Get(key)
	if !ok {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || len(text) > 4 {
		return badPair(E10, key, "a number of at most four digits", text)
	}
	*to = int(n)
	return nil
}

// agent reads the id of one agent.
func (d Data) agent(key string, to *Address) error {
	text, ok := d.Get(key)
	if !ok {
		return nil
	}
	a, err := ParseAddress(text)
	if err != nil || a.Many() {
		return badPair(E13, key, "the id of an agent", text)
	}
	*to = a
	return nil
}

// badPair says what is wrong with a pair.
func badPair(code Code, key, want, found string) error {
	return refusal(code, "", SegmentData, key+" in DATA must be "+want+", not "+quote(found))
}
