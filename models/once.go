package models

// Idempotency makes a mutating request happen at most once for its Idempotency-Key. It
// is passed down to the verb, whose transaction stores the answer; a repeated
// request gets the stored answer instead of a second effect.
type Idempotency struct {
	// Principal is the token the key belongs to.
	Principal string
	Key       string
	// RequestHash is the SHA-256 of method, path and body.
	RequestHash [32]byte
	// Render turns the verb's result into the answer to store; it leaves out
	// what must be shown only once. It runs inside the transaction.
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
