import { describe, expect, test } from 'vitest'
import { splitStatements } from '../../src/engine/split-statements.ts'

const texts = (query: string) => splitStatements(query).map(({ text }) => text)

describe('splitStatements', () => {
  test.each([
    ['nothing', '', []],
    ['only blanks, comments and semicolons', ' ; -- a;\n ;/* ; */;', []],
    ['one statement with and without its semicolon', 'select 1;', ['select 1']],
    ['two statements', 'select 1; select 2', ['select 1', ' select 2']],
    ['a semicolon in a string', "select ';'';'; select 2", ["select ';'';'", ' select 2']],
    ['a backslash in a plain string', "select '\\'; select 2", ["select '\\'", ' select 2']],
    ['a backslash in an escape string', "select e'\\';'; select 2", ["select e'\\';'", ' select 2']],
    [
      'an escape string on several lines',
      "select e'a' -- b\n '\\';' \n\n'\\';'; select e'a' '\\'; select 3",
      ["select e'a' -- b\n '\\';' \n\n'\\';'", " select e'a' '\\'", ' select 3'],
    ],
    ['a word that only ends in e', "select name'a\\'; select 2", ["select name'a\\'", ' select 2']],
    ['a quoted identifier', 'select ";"";"; select 2', ['select ";"";"', ' select 2']],
    ['dollar quotes', 'do $$ begin; end $$; select 2', ['do $$ begin; end $$', ' select 2']],
    ['tagged dollar quotes', 'do $a$ $$;$b$; $a$; select 2', ['do $a$ $$;$b$; $a$', ' select 2']],
    ['a dollar inside a word', 'select a$b$; select 2 c$b$', ['select a$b$', ' select 2 c$b$']],
    ['a parameter', 'select $1; select $2', ['select $1', ' select $2']],
    ['a line comment', 'select 1 -- ;\n; select 2', ['select 1 -- ;\n', ' select 2']],
    ['nested comments', 'select /* /* ; */ ; */ 1; select 2', ['select /* /* ; */ ; */ 1', ' select 2']],
    ['a string that never ends', "select 1; select 'a;b", ['select 1', " select 'a;b"]],
    ['a dollar quote that never ends', 'select 1; select $$a;b', ['select 1', ' select $$a;b']],
    ['a comment that never ends', 'select 1; /* a;b', ['select 1']],
    [
      'a routine with a body of statements',
      'create or replace function f() begin atomic select case when true then 1 end; select 2; end; select 3',
      ['create or replace function f() begin atomic select case when true then 1 end; select 2; end', ' select 3'],
    ],
    [
      'a routine whose body uses words of a block as labels',
      'create function f() begin atomic select 1 as end; select case when t.end then 1 end end, 2 as case, 3 end from t; end; select 4',
      [
        'create function f() begin atomic select 1 as end; select case when t.end then 1 end end, 2 as case, 3 end from t; end',
        ' select 4',
      ],
    ],
    [
      'a routine without statements',
      'create procedure p() begin atomic end; select 1',
      ['create procedure p() begin atomic end', ' select 1'],
    ],
    [
      'a routine that is named like a block',
      'create function s.begin() returns begin begin /* a */ atomic select 1; end; create procedure begin(); select 3',
      [
        'create function s.begin() returns begin begin /* a */ atomic select 1; end',
        ' create procedure begin()',
        ' select 3',
      ],
    ],
    [
      'a rule with several actions',
      'create rule r as on insert to t do (select 1; select 2); select 3',
      ['create rule r as on insert to t do (select 1; select 2)', ' select 3'],
    ],
    ['words of a block elsewhere', 'begin; select 1; end; select 2', ['begin', ' select 1', ' end', ' select 2']],
    ['letters of other alphabets', 'select $é$;$é$; select 2', ['select $é$;$é$', ' select 2']],
  ])('%s', (_, query, expected) => {
    expect(texts(query)).toEqual(expected)
  })

  test('stops after a number of statements', () => {
    expect(splitStatements('select 1; ; select 2; select 3', { statementsMax: 2 }).map(({ text }) => text)).toEqual([
      'select 1',
      ' select 2',
    ])
    expect(splitStatements('select 1;', { statementsMax: 2 })).toHaveLength(1)
  })

  test('counts the characters before a statement as Postgres does', () => {
    expect(splitStatements("select '😀é'; select 2; select 3")).toEqual([
      { text: "select '😀é'", characterOffset: 0 },
      { text: ' select 2', characterOffset: 12 },
      { text: ' select 3', characterOffset: 22 },
    ])
  })
})
