import { beforeAll, describe, expect, it } from 'vitest'
import { anyone, newApp, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { type BranchReply, newBranch, rows } from '../../support/branches.ts'
import { newProject } from '../../support/projects.ts'

let organization: TestOrganization
let parent: string
let branch: BranchReply
beforeAll(async () => {
  organization = await newOrganization()
  parent = await newProject(organization)
  await rows(organization.owner, parent, 'create schema app; create table public.notes (id int primary key)')
  branch = await newBranch(organization.owner, parent)
})

const diffOf = (of: string, query = '') => organization.owner.get(`/v1/branches/${of}/diff${query}`)

describe('the difference between a branch and its parent', () => {
  it('is SQL that makes the parent like the branch, and empty afterwards', async () => {
    const { owner } = organization
    const fresh = await diffOf(branch.project_ref)
    expect(fresh).toMatchObject({ status: 200, body: '' })
    expect(fresh.headers.get('content-type')).toBe('text/plain; charset=utf-8')
    const made = `alter table notes add body text not null default ''; create table app.items (id int, "o'dd" text);
      create policy own on notes using (true); comment on table notes is 'ünïcode'`
    await rows(owner, branch.project_ref, made)
    const { body: sql } = await diffOf(branch.id)
    expect(sql).toContain(`ALTER TABLE "public"."notes" ADD COLUMN "body" text NOT NULL DEFAULT ''::text;`)
    expect(sql).toContain('CREATE TABLE "app"."items"')
    for (const flag of ['true', 'false']) {
      expect((await diffOf(branch.project_ref, `?pgdelta=${flag}`)).body).toBe(sql)
    }
    const app = await diffOf(branch.project_ref, '?included_schemas=app')
    expect(app.body).toContain('"app"."items"')
    expect(app.body).not.toContain('notes')
    expect((await diffOf(branch.project_ref, '?included_schemas=app,%20public')).body).toBe(sql)
    expect(await diffOf(branch.project_ref, '?included_schemas=nowhere')).toMatchObject({ status: 200, body: '' })
    await rows(owner, parent, sql)
    expect(await diffOf(branch.project_ref)).toMatchObject({ status: 200, body: '' })
  })

  it.each([
    ['included_schemas', '?included_schemas=app,,public'],
    ['included_schemas', `?included_schemas=${'x'.repeat(64)}`],
    ['included_schemas', `?included_schemas=${Array(101).fill('a').join(',')}`],
    ['pgdelta', '?pgdelta=perhaps'],
  ])('is refused with an invalid %s: %s', async (field, query) => {
    const reply = await diffOf(branch.project_ref, query)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(field)
  })

  it('exists only for a branch', async () => {
    expect((await diffOf(parent)).status).toBe(422)
    expect((await diffOf('abcdefghijklmnopqrst')).status).toBe(404)
    expect((await diffOf(crypto.randomUUID())).status).toBe(404)
    expect((await diffOf('NoRef')).status).toBe(400)
  })

  it('names the changes that it cannot write', async () => {
    const { owner } = organization
    await rows(owner, parent, 'create domain public.size as int; create table app.sized (s public.size)')
    await rows(owner, branch.project_ref, 'create domain public.size as bigint; create table app.sized (s public.size)')
    const reply = await diffOf(branch.project_ref)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain('"public"."size"')
    expect(reply.body.message).not.toContain('owner-')
    await rows(owner, branch.project_ref, 'drop table app.sized; drop domain public.size')
    await rows(owner, parent, 'drop table app.sized; drop domain public.size')
  })

  it('is refused if the catalogue is too large', async () => {
    const { owner } = organization
    const comment = (text: string) => `do $$ begin execute format('comment on schema app is %L', ${text}); end $$`
    await rows(owner, branch.project_ref, comment(`repeat('x', 17000000)`))
    const reply = await diffOf(branch.project_ref)
    await rows(owner, branch.project_ref, comment('null'))
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('too large') } })
  })

  it('is for members who may change branches, and for applications with the scope', async () => {
    const path = `/v1/branches/${branch.project_ref}/diff`
    expect((await anyone.get(path)).status).toBe(401)
    expect((await (await newOrganization()).owner.get(path)).status).toBe(404)
    expect((await (await newMember(organization, 'developer')).get(path)).status).toBe(200)
    expect((await (await newMember(organization, 'read-only')).get(path)).status).toBe(403)
    expect((await (await newApp(organization, ['environment:read'])).caller.get(path)).status).toBe(403)
    expect((await (await newApp(organization, ['environment:write'])).caller.get(path)).status).toBe(200)
  })
})
