import { del, empty, get, patch } from '../../kernel/route.ts'
import { Addons, AddonVariant, ApplyAddon } from './schema.ts'
import { applyAddon, listAddons, removeAddon } from './service.ts'

const REFUSALS = 'An add-on that this installation does not offer is refused with the reason.'

export const addonRoutes = [
  get('/v1/projects/{ref}/billing/addons', {
    id: 'v1-list-project-addons',
    summary: 'List the add-ons of a project',
    description:
      'Lists the compute size, if it is larger than the smallest, and the sizes that the project can change to.',
    scope: 'any caller',
    permission: 'projects:read',
    returns: Addons,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => listAddons(ctx, project),
  }),

  patch('/v1/projects/{ref}/billing/addons', {
    id: 'v1-apply-project-addon',
    summary: 'Apply an add-on to a project',
    description: REFUSALS,
    scope: 'any caller',
    permission: 'projects:write',
    body: ApplyAddon,
    returns: empty,
    errors: ['bad_request.addon', 'conflict.project_status', 'service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => applyAddon(ctx, project, body),
  }),

  del('/v1/projects/{ref}/billing/addons/{addon_variant}', {
    id: 'v1-remove-project-addon',
    summary: 'Remove an add-on from a project',
    description: REFUSALS,
    scope: 'any caller',
    permission: 'projects:write',
    params: { addon_variant: AddonVariant },
    returns: empty,
    errors: ['bad_request.addon', 'not_found.addon', 'conflict.project_status', 'service_unavailable.project_database'],
    handle: ({ ctx, project, params }) => removeAddon(ctx, project, params.addon_variant),
  }),
]
