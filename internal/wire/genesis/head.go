package genesis

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Head is what ReadHead reads of a message, "" for what is absent or malformed.
type Head struct {
	Type Type
	ID   string
	// CorrelationID and Status are those of a RESPONSE.
	CorrelationID string
	Status        Status
}

// ReadHead reads the members that say to what a message belongs. It reads only as much of raw as it needs; the
// rest may be malformed.
func ReadHead(raw []byte) (h Head) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true))
	if open, err := dec.ReadToken(); err != nil || open.Kind() != '{' {
		return h
	}
	for h.ID == "" || h.Type == "" || h.Type == TypeResponse && (h.CorrelationID == "" || h.Status == "") {
		name, err := dec.ReadToken()
		if err != nil || name.Kind() != '"' {
			return h
		}
		member := name.String() // before the next call invalidates it
		value, err := dec.ReadValue()
		if err != nil {
			return h
		}
		if value.Kind() != '"' {
			continue
		}
		text, err := unquote(value)
		if err != nil || len(text) > maxName {
			continue
		}
		switch member {
		case "type":
			h.Type = Type(text)
		case "id":
			h.ID = string(text)
		case "correlationId":
			h.CorrelationID = string(text)
		case "status":
			h.Status = Status(text)
		}
	}
	return h
}
