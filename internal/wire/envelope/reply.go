package envelope

import (
	"cmp"
	"time"

	"github.com/google/uuid"
)

// unknownAgent stands for a sender whose type could not be read.
const unknownAgent = "unknown"

// Reply answers a message: from and to change places, trace_id and request_id are
// echoed. id and at are the answer's own. to may be what Parse returns with an error;
// what it could not read is then replaced: the sender by the word unknown, who was
// written to by orchestrator, and the ids by uuid.Nil, which only an error may have.
func Reply(to Envelope, id uuid.UUID, at time.Time, payload Payload) Envelope {
	return Envelope{
		ProtocolVersion: Version,
		MessageID:       id,
		From:            cmp.Or(to.To, Orchestrator),
		To:              cmp.Or(to.From, unknownAgent),
		Timestamp:       at.UTC(),
		TraceID:         to.TraceID,
		RequestID:       to.RequestID,
		Type:            payload.Type(),
		Payload:         payload,
	}
}
