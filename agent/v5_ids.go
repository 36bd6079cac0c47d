package agent

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"comet/internal/wire/v5"
)

// The names of a line have no room for a UUID, so that the ids of a task are made here. They
// are the same whenever the same line comes, also to another process with the same token;
// S and T are never given twice by one server, and the token belongs to the server.
//
// The id of a task is of version 8 (RFC 9562 §5.8) and has its CTX, TID and DEPTH in it, so
// that a process can speak of what the one before had begun:
//
//	bytes 0-4  the CTX without its S, base 36
//	byte  5    DEPTH × 4 + TID / 256
//	byte  7    TID % 256
//	the rest   a hash of all of it and the token

// contextBase is that of the digits of a CTX, which are no more than 5 bytes.
const contextBase = 36

// ids are those of the work that a line is about.
func (p *pipes) ids(m v5.Message) Key {
	task := p.taskID(placeOf(m))
	data := m.Data
	for _, key := range []string{"retry", "max", "fallback", "fallback_from", "reason"} { // which differ in each attempt
		data, _, _ = data.Cut(key)
	}
	return Key{Task: task, Request: uuid.NewSHA1(task, fmt.Appendf(nil, "%s|%s", m.From, trimmed(data)))}
}

// trimmed is DATA without what is left of pairs that were cut off its end.
func trimmed(data v5.Data) string {
	for len(data) > 0 && (data[len(data)-1] == ';' || data[len(data)-1] == ' ') {
		data = data[:len(data)-1]
	}
	return string(data)
}

// traceID is that of everything in a session.
func (p *pipes) traceID(context string) uuid.UUID {
	sum := sha256.Sum256([]byte(p.token))
	return uuid.NewSHA1(uuid.UUID(sum[:16]), []byte(context))
}

func (p *pipes) taskID(at place) (id uuid.UUID) {
	n, _ := strconv.ParseUint(afterS(at.context), contextBase, 40)
	tid, _ := at.task.Number()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%d", p.token, at.context, at.task, at.depth))
	copy(id[:], sum[:])
	var wide [8]byte
	binary.BigEndian.PutUint64(wide[:], n)
	copy(id[:5], wide[3:])
	id[5] = byte(at.depth<<2 | tid>>8)
	id[7] = byte(tid)
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return id
}

// placeIn reads the id of a task; ok is false for one that is not of this agent's.
func (p *pipes) placeIn(id uuid.UUID) (at place, ok bool) {
	var wide [8]byte
	copy(wide[3:], id[:5])
	at = place{
		context: "S" + strconv.FormatUint(binary.BigEndian.Uint64(wide[:]), contextBase),
		task:    v5.TaskOf(int(id[5]&3)<<8 | int(id[7])), depth: int(id[5] >> 2),
	}
	return at, p.taskID(at) == id
}

func afterS(context string) string {
	if context == "" {
		return ""
	}
	return context[1:]
}
