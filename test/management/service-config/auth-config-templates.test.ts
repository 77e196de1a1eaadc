import { describe, expect, it } from 'vitest'
import { findTemplateError } from '../../../src/management/service-config/auth-config/template.ts'
import templates from '../../support/go-templates.json' with { type: 'json' }

const LENGTH_MAX = 200_000

describe('the template of a mail', () => {
  it.each([
    '',
    'no action, and }} alone',
    '{{ .Token }}{{.Data.name}}{{- .Email -}} {{$}}{{ $.Email }}',
    '{{/* said to nobody {{ */}}{{- /* nor this */ -}}',
    '{{ if eq .Provider "github" }}a{{ else if and .Email (not .Phone) }}b{{ else }}c{{ end }}',
    '{{ with $name := .Data.name }}{{ $name | html }}{{ end }}',
    '{{ range $i, $one := .Data.list }}{{ if gt $i 3 }}{{ break }}{{ end }}{{ $one.x }}{{ else }}none{{ end }}',
    '{{ define "x" }}{{ . }}{{ end }}{{ template "x" .Data }}{{ block "y" . }}{{ end }}',
    '{{ printf "%s }} \\"" .Email }}{{ `raw }}` }}{{ 1.5e3 }}{{ -1 }}{{ true }}',
  ])('may be %j', (text) => {
    expect(findTemplateError(text)).toBeUndefined()
  })

  it.each([
    ['{{ .Code', 'not closed'],
    ['{{ .Code }', 'unexpected'],
    ['{{}}', 'empty'],
    ['{{ end }}', 'has no block to end'],
    ['{{ if .A }}', 'has no {{ end }}'],
    ['{{ if }}{{ end }}', 'empty'],
    ['{{ else }}', 'has no block'],
    ['{{ if . }}{{ else }}{{ else }}{{ end }}', 'only one'],
    ['{{ if . }}{{ else x }}{{ end }}', 'takes no arguments here'],
    ['{{ break }}', 'must be inside {{ range }}'],
    ['{{ Code }}', 'function "Code" is not defined'],
    ['{{ .A | upper }}', 'function "upper" is not defined'],
    ['{{ .A | "x" }}', 'cannot be called'],
    ['{{ .A | | .B }}', 'empty'],
    ['{{ (.A }}', 'not closed'],
    ['{{ .A) }}', 'unexpected )'],
    ['{{ "open }}', 'unexpected'],
    ['{{ $x }}', 'undefined variable $x'],
    ['{{ .A := 1 }}', 'unexpected :='],
    ['{{ .A, .B }}', 'unexpected ,'],
    ['{{ template .A }}', 'a quoted name'],
    ['{{ if . }}{{ define "x" }}{{ end }}{{ end }}', 'inside another'],
    ['{{/* never ends', 'comment'],
    ['{{ .A ; }}', 'unexpected'],
    ['{{ .A\u00a0}}', 'unexpected'],
    ['{{ if . }}{{ $x := 1 }}{{ end }}{{ $x }}', 'undefined variable $x'],
    ['{{ range $a, $b, $c := . }}{{ end }}', 'unexpected , after $b'],
    ['{{ with $a, $b := . }}{{ end }}', 'unexpected , after $a'],
    ['{{ "\\q" }}', 'unexpected'],
    ['{{ .A. }}', 'unexpected'],
    ['{{ .A..B }}', 'unexpected'],
    ['{{ range . }}{{ else }}{{ break }}{{ end }}', 'must be inside {{ range }}'],
    ['{{ define "x" }}a{{ end }}{{ define `x` }}b{{ end }}', 'template "x" is defined twice'],
  ])('may not be %j', (text, problem) => {
    expect(findTemplateError(text)).toContain(problem)
  })

  it('is valid if Go 1.19 parses it, and only then', () => {
    expect(templates.accepted.filter((text) => findTemplateError(text) !== undefined)).toEqual([])
    expect(templates.refused.filter((text) => findTemplateError(text) === undefined)).toEqual([])
  })

  it('may use {{ else with }} of Go 1.23', () => {
    expect(findTemplateError('{{ with .A }}a{{ else with .B }}b{{ else }}c{{ end }}')).toBeUndefined()
    expect(findTemplateError('{{ if .A }}a{{ else with .B }}b{{ end }}')).toContain('takes no arguments here')
  })

  it('is parsed in bounded time and memory', () => {
    expect(findTemplateError(`{{ ${'('.repeat(50_000)} }}`)).toContain('nested too deeply')
    expect(findTemplateError(`{{ print ${'(.A) '.repeat(5_000)} }}`)).toBeUndefined()
    const started = performance.now()
    const parts = [
      '{{',
      '{{ .A | ',
      '{{ "',
      '{{ if . }}',
      '{{/*',
      ' ',
      '{{ - ',
      '{{ 1',
      '{{ 1_',
      '{{ "\\',
      '{{ $a := 1 }}',
      '.A',
      '{{ a ',
    ]
    for (const part of parts) {
      findTemplateError(part.repeat(LENGTH_MAX / part.length))
      findTemplateError(`{{ ${part.repeat(LENGTH_MAX / part.length)} }}`)
    }
    // Parsing each from each of its positions to the end would take minutes.
    expect(performance.now() - started).toBeLessThan(30_000)
  })
})
