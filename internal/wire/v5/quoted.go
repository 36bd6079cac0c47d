package v5

// Quoted reports whether the value stands in quotes, which says that it is text even
// where it looks like a number.
func (p Pair) Quoted() bool { return p.Raw != p.Value() }

// Quoted writes key="value", for text that would otherwise look like something else.
func (w *Writer) Quoted(key, value string) *Writer {
	if w.key(key) && w.sayable(key, value) {
		w.data = append(append(append(w.data, '=', '"'), value...), '"')
	}
	return w
}

// Own reports whether the protocol itself uses the key of a pair in a request, so that
// it is none of the call's arguments (§8.2, §10.2).
func (d Data) Own(key string) bool {
	_, retried := d.Pair(keyRetry)
	return ownKey(key, retried)
}
