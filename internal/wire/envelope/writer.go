package envelope

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"comet/internal/words"
)

// writer writes the members of objects. After the first error it writes nothing more.
type writer struct {
	enc *jsontext.Encoder
	// replaceInvalid replaces what is not UTF-8 in texts, which is an error otherwise.
	replaceInvalid bool
	err            error
}

// objectWriter is an object that fill writes. It is written within json.Marshal, which has
// encoders at hand that need not grow again.
type objectWriter struct {
	fill           func(w *writer)
	replaceInvalid bool
}

// MarshalJSONTo implements json.MarshalerTo.
func (o objectWriter) MarshalJSONTo(enc *jsontext.Encoder) error {
	w := writer{enc: enc, replaceInvalid: o.replaceInvalid}
	w.token(jsontext.BeginObject)
	o.fill(&w)
	w.end()
	return w.err
}

// bytes returns the object on one line, or says which member cannot be written.
func (o objectWriter) bytes() ([]byte, *Problem) {
	data, err := json.Marshal(o, jsontext.PreserveRawStrings(true))
	if err == nil {
		return data, nil
	}
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return nil, problemf("the message cannot be written: %s", err)
	}
	field := words.Field(words.Pointer(string(syntactic.JSONPointer)))
	return nil, &Problem{Field: field, Detail: field + " cannot be written: " + syntactic.Err.Error()}
}

func (w *writer) token(t jsontext.Token) {
	if w.err == nil {
		w.err = w.enc.WriteToken(t)
	}
}

func (w *writer) begin(name string) {
	w.token(jsontext.String(name))
	w.token(jsontext.BeginObject)
}

func (w *writer) end() { w.token(jsontext.EndObject) }

func (w *writer) string(name, value string) {
	w.token(jsontext.String(name))
	w.text(value)
}

func (w *writer) text(value string) {
	if w.replaceInvalid {
		value = validUTF8(value)
	}
	w.token(jsontext.String(value))
}

// replacement stands where a text had what it must not.
const replacement = "\uFFFD"

func validUTF8(text string) string { return strings.ToValidUTF8(text, replacement) }

func (w *writer) strings(name string, values []string) {
	w.token(jsontext.String(name))
	w.token(jsontext.BeginArray)
	for _, v := range values {
		w.text(v)
	}
	w.token(jsontext.EndArray)
}

func (w *writer) integer(name string, value int64) {
	w.token(jsontext.String(name))
	w.token(jsontext.Int(value))
}

// integerIfSet writes a number unless it is 0.
func (w *writer) integerIfSet(name string, value int64) {
	if value != 0 {
		w.integer(name, value)
	}
}

func (w *writer) null(name string) {
	w.token(jsontext.String(name))
	w.token(jsontext.Null)
}

func (w *writer) uuid(name string, id uuid.UUID) { w.string(name, id.String()) }

func (w *writer) time(name string, at time.Time) {
	w.string(name, at.UTC().Format(time.RFC3339Nano))
}

// raw writes a JSON value unless it is nil.
func (w *writer) raw(name string, value []byte) {
	if value == nil {
		return
	}
	w.token(jsontext.String(name))
	if w.err == nil {
		w.err = w.enc.WriteValue(value)
	}
}
