package v5

import "iter"

// The keys of DATA that the protocol itself uses for a call (PROTOCOL_V5 §5.2, §8.2,
// §10.2, and the pairs that go with hand-offs and depth).
const (
	keyCall         = "call"
	keyParams       = "params"
	keyRetry        = "retry"
	keyMax          = "max"
	keyFallback     = "fallback"
	keyFallbackFrom = "fallback_from"
	keyReason       = "reason"
	keyParent       = "pid"
	keyJustify      = "justify"
	keyAgents       = "agents"
	keyAuth         = "auth"
)

// Param is one parameter of a call.
type Param struct {
	Name  string
	Value string
}

// Call is the capability that DATA asks for with call=, "" where it asks for none.
func (d Data) Call() string {
	capability, _ := d.Get(keyCall)
	return capability
}

// Params yields what stands in params= (§5.2): names and values with a colon between
// them and a comma behind them, quoted as in DATA. Only the first colon divides, so
// that a reference may be a value; a word without one is a name without a value.
func (d Data) Params() iter.Seq[Param] {
	return func(yield func(Param) bool) {
		text, _ := d.Get(keyParams)
		params(text, yield)
	}
}

// params reports whether the walk came to its end.
func params(rest string, yield func(Param) bool) bool {
	for more := true; more; {
		var place string
		place, rest, more = cut(rest, ',')
		if place = trim(place); place == "" {
			continue
		}
		name, value, _ := cut(place, ':')
		if !yield(Param{Name: unquote(trim(name)), Value: unquote(trim(value))}) {
			return false
		}
	}
	return true
}

// Arguments yields all that a call is given: what stands in params=, then the other
// pairs, as the examples of §12 have them, without those that the protocol itself uses.
// max is one of those only beside retry. A flag is a name without a value.
func (d Data) Arguments() iter.Seq[Param] {
	return func(yield func(Param) bool) {
		text, _ := d.Get(keyParams)
		if !params(text, yield) {
			return
		}
		_, retried := d.Pair(keyRetry)
		for p := range d.Pairs() {
			if ownKey(p.Key, retried) {
				continue
			}
			if !yield(Param{Name: p.Key, Value: p.Value()}) {
				return
			}
		}
	}
}

// ownKey reports whether a key beside call= is the protocol's own.
func ownKey(key string, retried bool) bool {
	switch key {
	case keyCall, keyParams, keyRetry, keyFallback, keyFallbackFrom, keyReason, keyParent, keyJustify:
		return true
	case keyMax:
		return retried
	}
	return false
}
