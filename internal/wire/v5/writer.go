package v5

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Writer writes DATA, pair by pair. The zero Writer is ready; the first thing that
// cannot be said is kept and returned by Data.
//
// A value with a semicolon or a space at an end is put in quotes. What quotes cannot
// protect cannot be said: |, >, control characters, a double quote, ;auth= and bytes
// that are not UTF-8. The document has no escape for them, so that they are refused
// with E12 and ReasonUnsayable and the caller stores the value and writes a reference.
// Only Text, which is for people, replaces them.
type Writer struct {
	data []byte
	err  *Error
}

// Data returns what was written, "-" where that is nothing. The error is an *Error;
// with ReasonOverflow DATA is longer than MaxData.
func (w *Writer) Data() (Data, error) {
	switch {
	case w.err != nil:
		return "", w.err
	case len(w.data) == 0:
		return none, nil
	case utf8.RuneCount(w.data) > MaxData:
		return "", refusal(E10, ReasonOverflow, SegmentData, fmt.Sprintf("DATA is longer than %d characters", MaxData))
	}
	return Data(w.data), nil
}

// Add writes key=value so that Get returns the very value.
func (w *Writer) Add(key, value string) *Writer {
	if w.key(key) && w.sayable(key, value) {
		w.data = append(w.data, '=')
		w.value(value, ";")
	}
	return w
}

// Number writes key=n.
func (w *Writer) Number(key string, n int64) *Writer { return w.Add(key, strconv.FormatInt(n, 10)) }

// Flag writes a word without a value.
func (w *Writer) Flag(word string) *Writer {
	w.key(word)
	return w
}

// List writes key=a,b,c so that Pair.List yields the very values. An empty one among
// them is unsayable.
func (w *Writer) List(key string, values ...string) *Writer {
	if !w.key(key) {
		return w
	}
	w.data = append(w.data, '=')
	for i, value := range values {
		if value == "" {
			w.refuse(key, "an empty element")
		}
		if i > 0 {
			w.data = append(w.data, ',')
		}
		if w.sayable(key, value) {
			w.value(value, ";,")
		}
	}
	return w
}

// Params writes params=name:value,… so that Params yields the very ones.
func (w *Writer) Params(params iter.Seq[Param]) *Writer {
	if !w.key(keyParams) {
		return w
	}
	w.data = append(w.data, '=')
	first := true
	for p := range params {
		if !first {
			w.data = append(w.data, ',')
		}
		first = false
		if !isKey(p.Name) || strings.ContainsAny(p.Name, ",:") {
			w.refuse(keyParams, "the name "+quote(p.Name))
		} else if w.sayable(p.Name, p.Value) {
			w.data = append(append(w.data, p.Name...), ':')
			w.value(p.Value, ";,")
		}
	}
	return w
}

// Ref writes key=#REF:… or another reference.
func (w *Writer) Ref(key string, r Ref) *Writer {
	if w.key(key) {
		text := r.String()
		if text == "" {
			w.refuse(key, "such a reference")
		}
		w.data = append(append(w.data, '='), text...)
	}
	return w
}

// Retry writes what is set of r, as Data.Retry reads it.
func (w *Writer) Retry(r Retry) *Writer {
	if r.Attempt != 0 || r.Max != 0 {
		w.Number(keyRetry, int64(r.Attempt))
	}
	if r.Max != 0 {
		w.Number(keyMax, int64(r.Max))
	}
	if r.Fallback != (Address{}) {
		w.Add(keyFallback, r.Fallback.String())
	}
	if r.From != (Address{}) {
		w.Add(keyFallbackFrom, r.From.String())
	}
	if r.Reason != "" {
		w.Add(keyReason, r.Reason)
	}
	return w
}

// Parent writes pid=M<n>.
func (w *Writer) Parent(number int) *Writer {
	return w.Add(keyParent, "M"+strconv.Itoa(number))
}

// Agents writes agents=W1,W2.
func (w *Writer) Agents(agents ...Address) *Writer {
	ids := make([]string, len(agents))
	for i, a := range agents {
		ids[i] = a.String()
	}
	return w.List(keyAgents, ids...)
}
