package models

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Optional is a member of a partial update: absent, null, or a value.
type Optional[T any] struct {
	Set   bool // the member is present
	Null  bool // and its value is null
	Value T
}

// Some returns a present, non-null member.
func Some[T any](v T) Optional[T] { return Optional[T]{Set: true, Value: v} }

// Pointer returns the value, nil where the member is absent or null.
func (o Optional[T]) Pointer() *T {
	if !o.Set || o.Null {
		return nil
	}
	return &o.Value
}

// Apply sets field to the value of a present member; null is the zero value.
func (o Optional[T]) Apply(field *T) {
	if o.Set {
		*field = o.Value
	}
}

// IsNull reports whether the member is present and null.
func (o Optional[T]) IsNull() bool { return o.Null }

// UnmarshalJSONFrom implements json.UnmarshalerFrom; it is only called for a
// member that is present.
func (o *Optional[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	o.Set = true
	if dec.PeekKind() == 'n' {
		o.Null = true
		return dec.SkipValue()
	}
	return json.UnmarshalDecode(dec, &o.Value)
}

// Precondition returns an error if a version of a resource (0 for one that does not exist) must not be
// changed; nil allows all.
type Precondition func(version int64) error

// Check returns the error of the precondition for a version.
func (p Precondition) Check(version int64) error {
	if p == nil {
		return nil
	}
	return p(version)
}

// Idempotency makes a mutating request take effect at most once per Idempotency-Key. It is passed
// to the operation, whose transaction stores the response; a repeated request gets the stored
// response instead of a second effect.
type Idempotency struct {
	// Principal is the token the key belongs to.
	Principal string
	Key       string
	// RequestHash is the SHA-256 of method, path and body.
	RequestHash [32]byte
	// Render turns the operation's result into the response to store, without the secrets that are
	// shown only once. It runs inside the transaction.
	Render func(result any) (StoredResponse, error)
	// Replay is set by the store when the request was already answered.
	Replay *StoredResponse
}

// StoredResponse is a stored response.
type StoredResponse struct {
	Status int
	Header map[string]string
	Body   []byte
}
