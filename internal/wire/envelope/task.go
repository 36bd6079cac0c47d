package envelope

import "bytes"

// maxTaskID is the longest task_id that TaskOf returns, in bytes.
const maxTaskID = 64

// FindTaskID is what stands behind the first member task_id, whichever object it is of, ""
// where there is none. It is for telling quickly which messages belong together; the
// message need not be valid.
func FindTaskID(raw []byte) string {
	_, rest, found := bytes.Cut(raw, []byte(`"task_id"`))
	if !found {
		return ""
	}
	rest = bytes.TrimLeft(rest, " \t\r\n:")
	if len(rest) == 0 || rest[0] != '"' {
		return ""
	}
	id, _, found := bytes.Cut(rest[1:], []byte{'"'})
	if !found || len(id) > maxTaskID {
		return ""
	}
	return string(id)
}
