import{j as o}from"./chunk-KLVCQP2G.js";var t="comet-single-keys",e=o(localStorage.getItem(t)!=="off");function n(){e.value=!e.value,localStorage.setItem(t,e.value?"on":"off")}export{e as a,n as b};
