package notify

import "strings"

// teamsRun is text inside of a RichTextBlock, in which Teams looks for no
// Markdown: a name with [brackets](and a link) stays what it is.
type teamsRun struct {
	Type   string `json:"type"` // TextRun
	Text   string `json:"text"`
	Weight string `json:"weight,omitempty"`
	Size   string `json:"size,omitempty"`
	Color  string `json:"color,omitempty"`
	Subtle bool   `json:"isSubtle,omitempty"`
}

type teamsBlock struct {
	Type    string     `json:"type"` // RichTextBlock
	Inlines []teamsRun `json:"inlines"`
}

type teamsCard struct {
	Schema  string       `json:"$schema"`
	Type    string       `json:"type"` // AdaptiveCard
	Version string       `json:"version"`
	Body    []teamsBlock `json:"body"`
}

type teamsAttachment struct {
	ContentType string    `json:"contentType"`
	ContentURL  *string   `json:"contentUrl"`
	Content     teamsCard `json:"content"`
}

// teamsBody is what a workflow of Teams takes: a message with one card.
type teamsBody struct {
	Type        string            `json:"type"`
	Attachments []teamsAttachment `json:"attachments"`
}

// teamsEscape breaks up what a card would fill in: {{DATE(…)}} and ${…}.
var teamsEscape = strings.NewReplacer("{{", "{\u200b{", "${", "$\u200b{")

func teamsText(text string, most int) string { return teamsEscape.Replace(shown(text, most)) }

func teamsMessage(e Event) teamsBody {
	color := "Good"
	if e.Severity == Error {
		color = "Attention"
	}
	run := func(r teamsRun) teamsRun { r.Type = "TextRun"; return r }
	block := func(inlines ...teamsRun) teamsBlock { return teamsBlock{Type: "RichTextBlock", Inlines: inlines} }
	body := []teamsBlock{
		block(run(teamsRun{Text: teamsText(heading(e), factRunes), Weight: "Bolder", Size: "Medium", Color: color})),
		block(run(teamsRun{Text: teamsText(e.Reason, factRunes), Weight: "Bolder"})),
	}
	if e.Message != "" {
		body = append(body, block(run(teamsRun{Text: teamsText(e.Message, textRunes)})))
	}
	for _, f := range facts(e) {
		body = append(body, block(run(teamsRun{Text: teamsText(f.name, factRunes) + ": ", Subtle: true}), run(teamsRun{Text: teamsText(f.value, factRunes)})))
	}
	body = append(body, block(run(teamsRun{Text: teamsText(e.ReportingController, factRunes) + " · " + e.Timestamp.UTC().Format("2006-01-02 15:04:05") + " UTC", Size: "Small", Subtle: true})))
	return teamsBody{Type: "message", Attachments: []teamsAttachment{{
		ContentType: "application/vnd.microsoft.card.adaptive",
		Content:     teamsCard{Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4", Body: body},
	}}}
}
