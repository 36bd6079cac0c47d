package bus

import (
	"strings"
)

// Kind is one kind of subject, written as the pattern that matches all of its subjects, with * in
// the place of a name. Subscribe to it with string(WakeInboxes).
//
// Names are agent ids and task ids. Letters, digits, - and _ stand for themselves, every other
// byte is written as % and two upper-case hexadecimal digits, and the empty name as %. Any name
// is therefore one token of a subject with one spelling.
type Kind string

// Subjects of wake-ups. Their messages have no content unless stated here: the receiver reads
// SQL, where the change was committed before.
const (
	// WakeInboxes reports that an agent's inbox may have new messages: comet.wake.inbox.<agent>.
	WakeInboxes Kind = "comet.wake.inbox.*"
	// WakeProgress reports that a task that an agent requested has progressed:
	// comet.wake.progress.<agent>%2F<task>.
	WakeProgress Kind = "comet.wake.progress.*"
	// WakeTasks reports that a task has changed: comet.wake.task.<task>.
	WakeTasks Kind = "comet.wake.task.*"
	// WakeDispatches reports that queued tasks may be assignable.
	WakeDispatches Kind = "comet.wake.dispatch"
	// WakeAgentIndexes reports that agents or their capabilities have changed.
	WakeAgentIndexes Kind = "comet.wake.agents"
	// Publications carries publications at most once to the replicas, which pass them on to their agents.
	Publications Kind = "comet.publications"
	// LiveEvents carries events that are sent to streams and not stored, at most once, to the replicas.
	LiveEvents Kind = "comet.events.live"
	// WakeEverything reports that other wake-ups may have been lost. The bus sends it, with its
	// own id, after it was disconnected, and turns it into a gap.
	WakeEverything Kind = "comet.wake.all"
)

// Subjects that agents use (Chiffon §Authentication, “message queue”). Each message is in the
// agent's protocol.
const (
	// AgentInboxes carries messages of comet to an agent: comet.agents.<agent>.inbox.
	AgentInboxes Kind = "comet.agents.*.inbox"
	// AgentOutboxes carries messages of an agent to comet: comet.agents.<agent>.outbox. A request
	// is answered below comet.agents.<agent>.reply, which the agent sets as the prefix of its
	// inboxes, and at no other subject of comet.
	AgentOutboxes Kind = "comet.agents.*.outbox"
)

// Of returns the subject of a name. A kind without a name has one subject.
func (k Kind) Of(name string) string { return strings.Replace(string(k), "*", word(name), 1) }

// NameIn returns the name in a subject, "" if the kind has none. ok is false for a subject that Of
// does not return.
func (k Kind) NameIn(subject string) (name string, ok bool) {
	before, after, named := strings.Cut(string(k), "*")
	if !named {
		return "", subject == string(k)
	}
	rest, ok := strings.CutPrefix(subject, before)
	if !ok {
		return "", false
	}
	text, ok := strings.CutSuffix(rest, after)
	if !ok {
		return "", false
	}
	return fromWord(text)
}

// mayReply reports whether the response to a message on subject may be published to reply: to any
// subject outside of comet's own ones, and among those only to the reply subjects of the sender.
func mayReply(subject, reply string) bool {
	if !isSubject(reply) || strings.ContainsAny(reply, "*>") {
		return false
	}
	if reply != "comet" && !strings.HasPrefix(reply, "comet.") {
		return true
	}
	agent, ok := AgentOutboxes.NameIn(subject)
	return ok && strings.HasPrefix(reply, "comet.agents."+word(agent)+".reply.")
}

const (
	emptyWord = "%"
	hexDigits = "0123456789ABCDEF"
)

// word encodes a name as one token of a subject.
func word(name string) string {
	if name == "" {
		return emptyWord
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// fromWord decodes what word encoded, and nothing else.
func fromWord(text string) (name string, ok bool) {
	if text == emptyWord {
		return "", true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) {
			c = byte(strings.IndexByte(hexDigits, text[i+1])<<4 | strings.IndexByte(hexDigits, text[i+2]))
			i += 2
		}
		b.WriteByte(c)
	}
	name = b.String()
	return name, name != "" && word(name) == text
}

// isSubject reports whether NATS accepts the text as a subject or pattern.
func isSubject(text string) bool {
	words := strings.Split(text, ".")
	for i, w := range words {
		switch {
		case w == "" || strings.ContainsAny(w, " \t\r\n\x00"):
			return false
		case w == "*", w == ">" && i == len(words)-1:
		case strings.ContainsAny(w, "*>"): // NATS would take them literally, which is never intended
			return false
		}
	}
	return len(text) <= maxSubject
}

// maxSubject is well below the 4,096 bytes that NATS allows for a protocol line.
const maxSubject = 1024
