import{a,b,c,d,e,f}from"./chunk-CNZ7CV4Y.js";import"./chunk-ICPV6B5J.js";import"./chunk-YU66U6VH.js";export{c as HookAgent,f as HookForm,a as HookState,e as Secret,d as Webhooks,b as trouble};
